"""What a Fetch does beside its handler: sessions, targets, reading, waiting, the fast path, fetches of very many."""
