"""Clusters under faults: `load` and `checker` say whether an acknowledged record was lost, `rounds` runs failures.

By hand, and for longer than the tests do:

    python -m compat_tests.faults.cluster.rounds --rounds 100 --report FILE [--peer kafka] [--brokers ours,ours,kafka]
"""
