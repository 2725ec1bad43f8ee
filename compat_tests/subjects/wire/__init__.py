"""Cases below any client library: bytes on a socket, good and bad."""
