"""PySpark with its Kafka connector against a broker: batch and streaming reads and writes, counted exactly."""
