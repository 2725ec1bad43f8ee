"""Exactly once under kill -9: a transactional load of stock clients, brokers that die at random moments, a checker.

    python -m compat_tests.faults.eos --rounds 20 --place alone --seed 1

`load` writes, copies and watches, `checker` judges, `places` are what is hurt: one broker alone, or three of ours and
of Apache Kafka's with ZooKeeper; `rounds` hurts them.
"""
