"""Settings of topics, brokers, groups and client-metrics subscriptions."""
