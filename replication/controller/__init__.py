"""The controller: a machine that takes the events of the cluster, and returns what to write and which messages to send.

May import every other room. It has no clock, no task and no store: effects are values.
"""
