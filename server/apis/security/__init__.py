"""Who clients are: their log-in, and the users that may log in."""
