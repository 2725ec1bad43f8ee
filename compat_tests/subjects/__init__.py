"""Subjects that are tested with several clients, or with none in particular: one folder each."""
