"""Exactly once, simulated: random producers, zombies among them, over a transaction coordinator and partition leaders
that die at any moment, on a network that delays, loses and repeats. Virtual time, one seed, no task, no socket.

    python -m barnabas.coordinator.tests.exactly_once --seeds 1-5000
    python -m barnabas.coordinator.tests.exactly_once --seeds 17 --trace

What is real: `barnabas.coordinator.txn` (machine and marker queues), the producers of a partition
(`barnabas.logdir.segments.producers`, with their verification), the offsets of a group
(`barnabas.coordinator.group.offsets`). What is a model: the network and time (`world`), what drives the machine over a
replicated log (`office`), a partition's leader and its log (`partitions`), clients as stock ones behave, of
transaction.version 0 and 2 (`clients`). `checks` holds the invariants, `run` the faults.
"""
