"""kafka-python 3: the pure Python client."""
