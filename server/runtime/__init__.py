"""What every room stands on: timers, threads, turns, who is told of a fault, the log, the heap.

May import nothing of the other rooms; nothing here knows Kafka's protocol, but for what `turns` counts in an answer.

Not obvious: whoever calls somebody else's code in the name of a third does so through `containment`; `signals` imports
next to nothing, as it is to be there before the rest is loaded; `logs` is the program's own log, not a partition's.
"""
