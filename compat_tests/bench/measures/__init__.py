"""The measures: each runs client programs against one broker (or cluster) and returns its values.

`records` produce and consume, `requests` are single small ones, `coordinators` transactions, commits and groups,
`latency` is end to end; `storage` and `start` start brokers of their own. `places` are the brokers that the others
share: plain, with TLS, with an authorizer, with a quick cleaner, three that replicate. `cluster` hurts the latter.

Values: `cpu_s_per_gib`, `cpu_us` are the broker's CPU seconds per GiB of values, microseconds per operation;
`resident_mb` is its memory at the end, added to every measure by who runs it.
"""
