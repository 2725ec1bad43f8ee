"""What people and machines read and write of a client: places in topics, times, records as JSON. Without IO."""
