"""What brokers ask of each other, the controller among them. Served in a cluster only."""
