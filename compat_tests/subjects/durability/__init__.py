"""What our broker promises beyond the protocol: acknowledged data survives, its files are Apache Kafka's, its memory
is bounded.

These tests start, kill and measure the process, so they run on our broker only; `--bootstrap` and `--peer` do not
concern them.
"""
