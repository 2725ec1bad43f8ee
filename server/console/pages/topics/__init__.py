"""Topics: the list, and each topic's pages but those of its records."""
