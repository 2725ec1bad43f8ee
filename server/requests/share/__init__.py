"""What the APIs of share groups have in common.

| module | what |
| --- | --- |
| `fetching` | records for a member, out of its session's partitions, or waiting for them |
| `acknowledging` | what a member says about records, asked of the share partitions |
| `late_steps` | the rest of a request, in turns |
| `access`, `checks` | who may, and what is checked first |
| `state_requests` | requests to the share coordinator, 83 to 87: one group, and an operation for each partition |
"""
