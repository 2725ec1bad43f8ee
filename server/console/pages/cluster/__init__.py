"""What belongs to the whole cluster: brokers, transactions."""
