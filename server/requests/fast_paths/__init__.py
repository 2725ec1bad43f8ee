"""Requests that are taken up without being decoded, as the connection has sent their like before.

A client in a loop asks the same thing over and over: same version, client id, topic, partition and limits. What differs
is known beforehand: the correlation id, and the batch of a Produce, or the epoch and the offset of a Fetch. So one
request is an *example*: a later one whose other bytes are the same says the same. It is not decoded, and its answer is
not encoded: a few numbers are put between the bytes of an answer that was encoded once.

    connection                    fast path                        slow path
    ──────────                    ─────────                        ─────────
    a frame ── take_run, take ──▶ like an example?
                                  do it; plain success? ──▶ answered with the example's bytes
       ▲                              │ no: None, nothing has happened
       └──────────────────────────────┘
       └── the dispatcher ───────────────────────────────────────▶ decode, handle, encode
                                  an example, or not ◀── learn ─── `Api.learn`

The rules, which hold for each of them:

1. `Connection.fast_paths` holds those that were learnt, at most one of each kind, and asks them in that order. It knows
   none of them by name, nor does the dispatcher: `Api.learn` looks at requests that were handled, and adds to the list.
2. Only plain success is a fast path's matter. An error, a wait, a refusal: it returns None before it has changed
   anything, and the request is the dispatcher's. What needs more when it is staged already (a commit to wait for, a
   lost write) is finished by the slow path's own code.
3. Answers, and what is written, are byte for byte those of the slow path. `server/tests/requests/test_fast_paths.py`
   holds random conversations with and without them, for every kind.
4. What the slow path asks again for each request (is the partition led here, the session's epoch, limits that may be
   set while the broker runs) is asked here, too. An example remembers what the bytes say, not what was true.
5. What is remembered is bounded: examples have a greatest length, a connection has a greatest number of them, and they
   go with it.

| kind | requests | an example is | spares |
| --- | --- | --- | --- |
| `produce.ProduceFastPath` | v9+, acks 1 or -1, one partition | all before the batch | a fifth at 16 KB |
| … `take_run` | several of these behind each other | the same | half of what is left |
| `fetch.FetchFastPath` | v12+, a consumer's, one partition | all but epoch and offset | a third at 1 MB |
"""
