"""One broker: what it is made of, how it starts, and how it ends.

`build` makes every part that answers requests, and is the only place that does; `broker` starts and stops them;
`process` runs one broker as this process. May import everything below; only `cli`, `testing` and `sim` import it.
"""
