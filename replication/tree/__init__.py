"""The coordination tree as Apache Kafka 3.x lays it out: paths and JSON, and what brokers and controllers do to it.

May import `values`, `store`, `planning`, `replica` and `messages`.
"""
