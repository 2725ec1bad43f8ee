"""Records: where a search begins, which records it wants, how far it has come, how they are shown."""
