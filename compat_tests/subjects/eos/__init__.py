"""Exactly once from end to end: Apache Kafka's own copier and Kafka Streams, killed at random moments, and the broker.

Each test starts a broker of its own and prints its seed; `--rounds N` makes it kill so many times, `--fault-seed N`
repeats a run as far as the machine lets it.
"""
