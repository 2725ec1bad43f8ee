"""Transactions of several clients on one broker: all at once in one partition, one after the other under one id, and
over the death of the broker.

A broker of each test's own where it dies; elsewhere the session's.
"""
