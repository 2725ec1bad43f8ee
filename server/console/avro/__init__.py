"""Avro: which schema, fetched from where, decoded in a process of its own. `book.py` is its face."""
