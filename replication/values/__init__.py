"""The cluster as immutable values: `image`, and which versions its brokers speak. Imports no other room."""
