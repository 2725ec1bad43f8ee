"""Clusters of real processes: ZooKeeper and several brokers, each ours or Apache Kafka 3.9.1, in any mix.

`harness` starts and describes them, `network` cuts them apart, `load` and `checker` say whether an acknowledged record
was lost, `faults` runs rounds of failures. By hand, and for longer than the tests do:

    python -m compat_tests.faults.cluster.rounds --rounds 100 --report FILE [--peer kafka] [--brokers ours,ours,kafka]
"""
