"""What a Fetch does beside its handler: sessions, targets, reading, waiting, fetches of very many partitions."""
