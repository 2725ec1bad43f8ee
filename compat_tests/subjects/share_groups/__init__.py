"""Share groups (KIP-932) with stock clients: Java's KafkaShareConsumer 4.3.1, librdkafka's ShareConsumer, and franz-go.

A member (`members`) polls when it is asked to, or by itself in a thread of its own. The broker is this folder's own:
with the usual 5 s between heartbeats, and locks of at least 15 s, every step of a group would take seconds.
`--peer kafka` runs everything against Apache Kafka 4.3.1.
"""
