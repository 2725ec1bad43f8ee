"""Who clients are: their log-in, and the users that may log in. Who may do what, as it is described and changed."""
