"""What every room stands on: timers, threads, turns, who is notified of a fault, the log, the heap.

May import nothing of the other rooms; nothing here knows Kafka's protocol, but for what `turns` counts in an answer.

Not obvious:

- Code that calls another owner's code on behalf of a third does so through `containment`.
- `signals` imports next to nothing, as it is to be there before the rest is loaded.
- `logs` is the program's own log, not a partition's.
- Descriptors are shared out (`descriptors`). Files and modules that are read when first needed, schemas among them,
  need one of the reserve for a moment; so answers that hold many segments open and are not read are abandoned when
  these run low.
- An error that is kept is kept without its traceback (`KafkaError.as_value`, `offload`): else it is in a cycle with the
  frames that it went through and all that they refer to, requests of many megabytes among it. A broker at rest makes no
  objects, so the collector would not come by.
"""
