"""One broker: what it is made of, how it starts, and how it ends.

`build` makes every part that answers requests, and is the only place that does; `broker` starts and stops them;
`process` runs one broker as this process. May import everything below; only `cli`, `testing` and `sim` import it.

Not obvious:

- A process ends by `barnabas.server.runtime.signals` until the broker hears signals itself, then by `process`: one
  FATAL line, in the words of `barnabas.server.runtime.wording`.
- A bug that ends the broker still has its logs flushed and checkpointed, without the mark of a clean stop (`stopping`).
"""
