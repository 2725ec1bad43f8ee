"""confluent-kafka: librdkafka 2 from Python."""
