"""Faults that a test suite asks for (`barnabas dev --control`), as stock clients meet them: each kind reaches Apache
Kafka's Java clients, librdkafka and kafka-python as what it names.

A broker of its own, controlled by HTTP as a program in any language would. `clients.py` says in what words each client
does the same few things and what it then says of an error.
"""
