"""Metrics over HTTP, held against what Apache Kafka's tools say."""
