"""KIP-848 groups with stock clients: Java 4.3.1 and librdkafka with `group.protocol=consumer`, alone and together with
classic members (Java 3.9.1, kafka-python, librdkafka) while a live group changes its protocol.

A member (`members`) polls in a thread of its own from the beginning, as an application does, and is asked from outside.
The broker is this folder's own: with the protocol's usual 5 s between heartbeats every step of a group would take
seconds. `--peer kafka` runs everything against Apache Kafka 4.3.1.
"""
