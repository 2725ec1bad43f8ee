"""The controller: a machine that takes what happened in the cluster and says what to write and whom to tell.

May import every other room. No clock, no task, no store in its hands: effects go out as values.
"""
