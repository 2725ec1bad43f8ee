"""Groups and transactions: what runs the machines of `coordinator` over partitions of the internal topics.

| module | what |
| --- | --- |
| `groups`, `transactions` | the two coordinators: what is asked of them, and what is particular to them (`Subject`) |
| `runtime` | runs a coordinator's machines; the face of the next four, which share a `CoordinatedShard` per partition |
| `coordinated_shard` | a partition that is led here, its machine, and its state: LOADING, ACTIVE, CLOSED |
| `loader`, `loading` | from the log to a machine that may be asked; how a slice of the log is read |
| `results` | appends what a machine decided, replays it, waits for its commit, gives the answers; deadlines |
| `internal_topic` | where a key lives, and who has the topic created |
| `ground` | what coordinators need of their broker |
| `group_topics`, `pattern_resolver`, `group_patterns`, `machine_config` | what groups need besides |
| `marker_sender`, `marker_writer` | markers: written by the partitions' leaders; those of partitions led here |
| `verification`, `verification_own`, `verification_others`, `verification_asks` | asks who has a transaction open |
| `producer_ids` | blocks of them |

May import `partitions`, `cluster` and below, not `storage`.

Not obvious:

- A transaction marker is never abandoned because the image does not show the partition: the store decides.
- What a coordinator wrote and could not commit in time is answered with an error, and still counts when it is
  committed.
"""
