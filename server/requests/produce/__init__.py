"""What a Produce does beside its handler: the fast path, transactions, requests that are held as they take long."""
