"""Consumer groups: the list, and each group's pages."""
