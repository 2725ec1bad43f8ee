"""The cluster and its brokers as a client sees them: versions, features, log directories."""
