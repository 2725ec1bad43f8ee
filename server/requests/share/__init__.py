"""What the APIs of share groups have in common.

| module | what |
| --- | --- |
| `state_requests` | requests to the share coordinator, 83 to 87: one group, and an operation for each partition |
"""
