"""Clients that log in, with SASL over plain TCP: right and wrong credentials, unknown users, sessions that end.

Each case runs against ours, and with `--peer kafka` against Apache Kafka 4.3.1 with the same listeners and users.
"""
