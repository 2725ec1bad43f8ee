"""Clients that log in, and come through TLS: right and wrong credentials and certificates, sessions that end.

Each case runs against ours, and with `--peer kafka` against Apache Kafka 4.3.1 with the same listeners and users
(`compat_tests.harness.secured`).
"""
