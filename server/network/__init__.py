"""Bytes in and out: sockets, connections, listeners, and the connections that this broker opens to others.

`reactor` drives plain TCP, `stream_transport` everything else that carries bytes; `connection` is without IO and the
same under both. May import `config`, `settings`, `runtime`. What a request means is not known here: a connection asks
for a context and gets a `Slot`.

Not obvious: one task serves all connections, in rounds; what is received lies in a buffer that lives for one round.
"""
