"""Clients with quotas: their rate over a minute, what it means for others and for the broker's memory, request time,
and changes that the controller makes. Each case runs against ours, and with `--peer kafka` against Apache Kafka 4.3.1.

`kafka-configs` sets the limits. The throttled clients are librdkafka's, which do not hold back by themselves: what
keeps them to their rate is the broker alone.
"""
