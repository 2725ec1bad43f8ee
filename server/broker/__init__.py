"""One broker: what it is made of, how it starts, and how it ends.

`broker` makes every part, and is the only place that does; `process` runs one broker as this process. May import
everything below; only `cli`, `testing` and `sim` import it.
"""
