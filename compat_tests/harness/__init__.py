"""What the suite stands on: brokers and other processes, jars and tools, the clients' common face, checks."""
