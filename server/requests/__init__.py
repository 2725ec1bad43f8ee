"""Request processing: from a frame to a handler and back, and what several handlers share.

`dispatch` takes a frame, `context` is one request and the slot of its answer, `services` is what a handler may use.
`fetch` and `produce` hold what these two do beside their handlers, `share` what requests of share groups have in
common, `group_descriptions` how groups of the newer kinds are described, `fast_paths` how Produce, Fetch and commits
avoid decoding.
May import everything below, and knows no handler.

Not obvious:

- A context is the slot of its answer. `ctx.reply` may be called from anywhere on the loop's thread; `Connection` sends
  answers in request order and takes no further request while one is pending (except Produce, which is pipelined).
- A context without references is a request that can never be answered; the sweep of idle connections finds it.
- A Produce, Fetch or OffsetCommit like the one before on its connection takes the fast path: it is not decoded, nor its
  answer encoded again. Anything but plain success takes the slow path (`fast_paths/__init__.py` has the rules).
- A batch may be too much work: 10 KB of zstd may hold 18 million records. Batches are validated within an allowance
  that each round renews (`barnabas.kproto.allowance`); a request that needs more is held and continues in turns or in
  a thread (`produce/held.py`).
- Old clients are served by tasks: Produce 0-2 and Fetch 0-3 have handlers of their own (`Api.old`), which convert
  records in small steps (`old_formats.py`). `Route` chooses once per version, so current versions do not check.
- `image_cache.py` keeps Metadata answers until the image of the cluster changes.
- A verification is the permission for one first batch of a transaction. Every marker revokes it, so a retry
  verifies again. A Produce that waits for the coordinator holds its connection.
"""
