"""Apache Kafka's command-line tools, run from their jars by main class: what the `kafka-*.sh` scripts run."""
