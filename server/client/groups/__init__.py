"""Groups as a client of any Kafka sees them, of all kinds: `classic`, `consumer` (KIP-848), `share` (KIP-932) and
`streams` (KIP-1071).

    values.py     a group, its members, and what it has committed
    groups.py     list, describe, delete
    newer.py      share and streams groups: described, and where share groups stand
    committed.py  the offsets of the other kinds: ask, set, forget
    lag.py        how far groups are behind, in records and in seconds
    resets.py     offsets set anew, after a look at the plan
"""
