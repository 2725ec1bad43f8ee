"""What all rooms use: timers, threads, turns, containment of errors, the log, the heap.

Imports no other room; nothing here knows Kafka's protocol, except for what `turns` counts in an answer.

Not obvious:

- Code that calls another owner's code on behalf of a third does so through `containment`.
- `signals` imports next to nothing, as it must work before the rest is loaded.
- `logs` is the program's own log, not a partition's.
- Descriptors are budgeted (`descriptors`). Files and modules that are read on demand, schemas among them, need one of
  the reserve for a moment; so when it runs low, connections are closed whose clients do not read responses that hold
  many segments open.
- All time is trio's clock and a wall clock that is passed in, so a broker under test moves both (`virtual_clock`), and
  waits until nothing runs any more (`settling`).
- A stored error has no traceback (`KafkaError.as_value`, `offload`): it would form a cycle with its frames and all that
  they refer to, such as requests of many megabytes. An idle broker allocates no objects, so the garbage collector
  would not run.
"""
