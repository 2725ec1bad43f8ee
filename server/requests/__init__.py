"""A request on its way: from a frame to a handler and back, and what several handlers share.

`dispatch` takes a frame up, `context` is one request and the slot of its answer, `services` is what a handler may
reach.
`fetch` and `produce` hold what these two do beside their handlers, their fast paths among them. May import everything
below; no handler is known here.

Not obvious: a context that nobody holds any more is a request that can never be answered; the sweep of idle
connections finds it.
"""
