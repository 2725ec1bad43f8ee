"""What only a whole broker, or several, can show: clusters, containment, hostile and very old clients."""
