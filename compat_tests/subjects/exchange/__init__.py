"""Directories that change hands: what Apache Kafka wrote our broker serves, what ours wrote Apache Kafka serves.

`filler` makes topics, groups and transactions of every kind on a broker, `picture` takes down everything that a stock
client can see of them, `places` has the brokers, and directories as a kill leaves them. The tests fill a directory with
one broker, open it with the other, and compare the two pictures.

They start, kill and exchange brokers, so `--bootstrap` and `--peer` do not concern them.
"""
