"""HTTP/1.1 for services beside the broker, on its own loop: a server bounded in memory and time, by h11.

Knows no path and no service: `barnabas.server.metrics` and `barnabas.server.control` bring theirs. Loaded only with one
of them.
"""
