"""Clusters under faults, with a load and a checker: of the cluster itself, and of transactions."""
