"""One file per API; `APIS` is the broker's list of what it serves."""
