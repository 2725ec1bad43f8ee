"""Bytes in and out: sockets, connections, listeners, and the connections that this broker opens to other brokers.

`reactor` drives TCP, with `tls_carrier` where a listener has TLS, and `stream_transport` any other stream;
`connection` does no IO and is the same under all of them. May import `security`, `config` and what is below. Requests
are opaque here: a connection passes a frame on and gets a `Slot`.

Not obvious:

- One task serves all connections, in rounds; received bytes lie in a buffer that lives for one round.
- Answers of timers and tasks are sent by the reactor's tail task, never from inside the call that caused them, so
  nothing is re-entered.
- Requests are bounded by elements, not by bytes alone (`request_bounds.py`): decoders count them and raise before
  anything is allocated.
- A busy client and the broker alternate: it sends five requests and waits, we answer five and wait. The more of them
  are handled together, the faster both are. Answering after half of them was measured: a sixth slower.
"""
