"""One broker: what it is made of, how it starts, and how it ends.

`build` makes every part that answers requests, and is the only place that does; `broker` starts and stops them;
`process` runs one broker as this process. May import everything below; only `cli`, `testing` and `sim` import it.

Not obvious:

- Signals end a process through `barnabas.server.runtime.signals` until the broker handles them itself, then through
  `process`. A failure is one FATAL line, worded by `barnabas.server.runtime.wording`.
- A broker under test (`barnabas dev --control`) has a clock that goes forwards in jumps, and begins a new life in the
  same process when it is restored (`lives`).
- After a bug that ends the broker its logs are still flushed and checkpointed, but not marked clean (`stopping`).
"""
