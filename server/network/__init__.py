"""Bytes in and out: sockets, connections, listeners, and the connections that this broker opens to others.

`reactor` drives TCP, with `tls_carrier` where a listener has TLS, `stream_transport` everything else that carries
bytes; `connection` is without IO and the same under all of them. May import `security`, `config` and what is below.
What a request means is not known here: a connection asks for a context and gets a `Slot`.

Not obvious:

- One task serves all connections, in rounds; what is received lies in a buffer that lives for one round.
- Answers of timers and tasks are sent by the reactor's tail task, never from inside the call that caused them, so
  nothing is re-entered.
- Requests are bounded by elements, not by bytes alone (`request_bounds.py`): decoders count them and refuse before
  anything is made.
- A busy client and the broker take turns: it sends five requests and waits, we answer five and wait. The more of a turn
  is done at once, the faster both are. Answering after half of a turn was measured: a sixth slower.
"""
