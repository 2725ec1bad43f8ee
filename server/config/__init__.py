"""The settings in force: read, checked, layered, changed, described.

`broker` is the value that all rooms read (`BrokerConfig`) and its builder; `draft`, `rules` and `listener_rules` are
the builder's checks. `topics` and `groups` are a topic's and a group's settings over it. May import `settings` (what
there is to set) and `runtime`.

Not obvious: a configuration is never changed, but replaced as a whole, so a reader never sees part of a change.
"""
