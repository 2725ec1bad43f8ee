"""Share groups in the broker, beside their coordinators.

| module | what |
| --- | --- |
| `groups` | operations on share groups, and what they want of share coordinators |
| `persister` | asks share coordinators, here or on other brokers, until there is an answer |
| `partitions` | share partitions of this broker: what members acquire and acknowledge |
| `log_reading` | the log as share groups read it |
| `state_wire` | what is asked of them ↔ requests 83 to 87 |
"""
