"""Partitions on this broker: their logs, their roles, who waits for them, and how they are replicated.

`registry` has them all and their changes of role, `partition` is one of them; `followers` fetches what is led
elsewhere, `in_sync` tells the controller who keeps up with what is led here. May import `network` and
below, not `cluster`.

Not obvious: staged is not written. Between `append` and `write` offsets are assigned and nobody can read them.
"""
