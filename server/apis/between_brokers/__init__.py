"""Requests between brokers, the controller among them. Served in a cluster only."""
