"""The portable conformance suite: stock clients against a broker, over TCP. Nothing of Barnabas is imported here.

`pytest compat_tests` starts our broker; `--bootstrap HOST:PORT` tests one that runs; `--peer kafka` starts and tests
Apache Kafka 4.3.1.
"""
