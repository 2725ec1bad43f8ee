"""Access lists, users, quotas and tokens in a cluster of ours and Apache Kafka's; asks single brokers, by `kproto`."""
