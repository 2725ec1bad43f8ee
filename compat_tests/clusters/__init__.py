"""Clusters of real processes: ZooKeeper and several brokers, each ours or Apache Kafka 3.9.1, in any mix.

`harness` starts and describes them, `network` cuts them apart. What becomes of them under load and failures is in
`compat_tests.faults`.
"""
