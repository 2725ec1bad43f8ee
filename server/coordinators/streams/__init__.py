"""Streams groups in the broker, beside their coordinators.

| module | what |
| --- | --- |
| `groups` | operations on streams groups |
| `internal_topics` | the internal topics that their applications want are made |
"""
