"""Groups and transactions: what runs the machines of `coordinator` over partitions of the internal topics.

| module | what |
| --- | --- |
| `groups`, `transactions`, `share_states` | the three coordinators: operations, and what is their own (`Subject`) |
| `share/`, `late_shares` | for share groups: requests to share coordinators, operations; made when somebody asks |
| `streams/` | for streams groups: operations, and internal topics made for them |
| `deleted_topics`, `gone_topics` | the cluster has deleted topics: who watches for that; how machines forget them |
| `runtime` | runs a coordinator's machines; the face of the next four, which share a `CoordinatedShard` per partition |
| `coordinated_shard` | a partition that is led here, its machine, and its state: LOADING, ACTIVE, CLOSED |
| `loader`, `loading` | from the log to a loaded machine; how a slice of the log is read |
| `results` | appends a machine's decisions, replays them, waits for their commit, delivers the answers; deadlines |
| `internal_topic` | the partition of a key, and the creation of the topic |
| `ground` | what coordinators need of their broker |
| `group_topics`, `pattern_resolver`, `group_patterns`, `machine_config` | what groups need besides |
| `marker_sender`, `marker_writer` | markers: sent to the partitions' leaders; written into partitions led here |
| `verification`, `verification_own`, `verification_others`, `verification_asks` | whether a transaction is open |
| `producer_ids` | blocks of them |

May import `partitions`, `cluster` and below, not `storage`.

Not obvious:

- A transaction marker is never dropped because the image does not show the partition: the store decides.
- A coordinator's write that is not committed in time is answered with an error, and takes effect if it is committed
  later.
"""
