"""Requests that are handled without being decoded, because the connection has sent similar ones before.

A client in a loop repeats the same request: same version, client id, topic and limits. Only known fields differ: the
correlation id, and partitions and batches of a Produce, or epochs and offsets of a Fetch or a commit. So one request is
an *example*: a later one whose other bytes are equal means the same. It is not decoded, and its answer is not encoded:
a few numbers are inserted into an answer that was encoded once.

    connection                    fast path                        slow path
    ──────────                    ─────────                        ─────────
    a frame ── take_run, take ──▶ like an example?
                                  do it; plain success? ──▶ answered with the example's bytes
       ▲                              │ no: None, nothing has happened
       └──────────────────────────────┘
       └── the dispatcher ───────────────────────────────────────▶ decode, handle, encode
                                  an example, or not ◀── learn ─── `Api.learn`

The rules, which hold for each of them:

1. `Connection.fast_paths` holds those that were learnt, a few at most, and tries them in that order. Neither
   the connection nor the dispatcher knows them by name: `Api.learn` sees requests that were handled, and adds to the
   list.
2. A fast path itself handles plain success only. For an error or a refusal it returns None before it has changed
   anything, and the dispatcher takes over. What needs more once it is staged (a commit to wait for, a lost write,
   another partition's error), and a Fetch that must wait, is completed by the slow path's code.
3. Answers, and what is written, are byte for byte those of the slow path. `server/tests/requests/test_fast_paths.py`
   compares random conversations with and without them, for every kind.
4. What the slow path checks for each request (leadership, the session's epoch, dynamic limits) is checked here, too. An
   example remembers what the bytes mean, not the state of the broker.
5. Memory is bounded: examples have a maximum length, a connection has a maximum number of them, and they are dropped
   with it.

| kind | requests | an example is | spares |
| --- | --- | --- | --- |
| `produce.ProduceFastPath` | v5+, any acks, partitions of one topic | all up to the topic | half at one record |
| … of several partitions | the same | the same | a quarter at one record |
| … `take_run` | several to one partition behind each other | the same | half of what is left |
| `fetch.FetchFastPath` | v12+, a consumer's, any partitions | all but epochs and offsets | 6 us of 19 or more |
| … that answers, too | … one partition, now or when records come | the same | two thirds; half of a wait |
| `offset_commit.OffsetCommitFastPath` | v2+, without retention | all but offsets and epochs | half or more |

To add a kind (`examples.py` has the parts that they share):

1. Which numbers differ between two requests of a loop? If the frame's size stays the same, that is a `Form`: an
   example is a class with `form` and `take(connection, numbers)`, the fast path an empty class derived from `Repeated`.
   What carries records, whose frames have any size, is a `FastPath` of its own, as Produce's.
2. Encode the answer once with `MARKS` where numbers will be (`around_marks`); without any, nothing but the correlation
   id differs. `take` makes a `RequestContext` and answers it with `reply_encoded`, now or from a callback.
3. `learn(svc, ctx, frame, request)` accepts or leaves each request that was handled, finds the positions of the numbers
   in its frame, and checks that they are there. It is called for each request that `take` has left:
   `path.may_learn(frame)` is asked early.
4. `learn=` in the row of the API, and a conversation in `test_fast_paths.py`, which fails without one.
"""
