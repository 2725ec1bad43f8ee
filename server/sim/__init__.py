"""A cluster of three brokers, run from a seed under virtual time, with everything around it that may go wrong.

    python -m barnabas.server.sim --seeds 1-100            prints the seeds that fail, and why
    python -m barnabas.server.sim --seeds 17 --trace       one of them again, with all that happened

The brokers are the real ones (`barnabas.server.broker.broker.Broker`); simulated are what they stand on: the network
(`network.py`), the disks (`disk.py`), the coordination store's sessions (`store.py`), the processes that are stopped,
killed and started (`cluster.py`), and time itself (`world.py`). `client.py`, `load.py`, `reading.py` and
`transactions.py` are the clients, `faults.py` is what goes wrong and when, `checks.py` and `ledger.py` check what must
hold during the run and at its end, `run.py` is one run from beginning to end.

The same seed gives the same run: one thread, trio's scheduler seeded, every random number from the seed, and a hash
seed that is fixed (the command sees to it). So a seed is the whole report of a bug.

Not simulated: TLS, clocks that differ between brokers, failing or full disks (`logdir/tests` do that), the internals
of ZooKeeper (an ensemble is one tree that never fails; what fails is the way to it).
"""
