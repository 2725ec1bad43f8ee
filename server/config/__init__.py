"""The settings in force: read, checked, layered, changed, described.

`broker` is the value that everybody reads (`BrokerConfig`) and its builder; `draft`, `rules` and `listener_rules` are
what the builder checks with. `topics` and `groups` are a topic's and a group's settings over it.
May import `settings` (what there is to set) and `runtime`.

Not obvious: a configuration is never changed, but replaced as a whole, so a reader never sees half of a change.
"""
