"""Apache Kafka's own Java clients, several versions, in one JVM each."""
