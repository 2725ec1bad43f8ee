"""Share groups (KIP-932): many consumers of one partition, each record for one of them at a time, acknowledged singly.

This is the face; it is not part of the package's, so that a broker without share consumers need not load it.

    partition.py    a partition as one group has it, on its leader: what is acquired, acknowledged, settled
    sessions.py     what a member fetches from one broker, remembered from request to request
    state_shard.py  what is stored of such partitions, by the coordinator that `__share_group_state` has for each

Not obvious:

- A share partition is soft: it is made out of the store's state when the first member comes, and forgotten with the
  last session of its group. The store knows what is settled and how often the rest was delivered, not who has what.
- Nothing here asks whether a member belongs to the group: any member id may acquire, and whoever has a record may
  acknowledge it. Clients rely on it: librdkafka leaves the group before it sends its last acknowledgements.
"""

from barnabas.coordinator.share.aborted import ReadBatch, aborted_ranges
from barnabas.coordinator.share.acknowledging import Acknowledgement
from barnabas.coordinator.share.acquiring import Acquired, LogBatch, Wanted
from barnabas.coordinator.share.batches import StateBatch, listed_batches, read_batches
from barnabas.coordinator.share.keys import coordinator_key, parse_coordinator_key
from barnabas.coordinator.share.partition import (
    Acquirable,
    PartitionState,
    ReadState,
    ResolveStart,
    SharePartition,
)
from barnabas.coordinator.share.sessions import ShareSession, ShareSessions
from barnabas.coordinator.share.state_shard import StateConfig, StateRead, StateShard, Stored, Summary
from barnabas.coordinator.share.state_stored import ShareKey, ShareState
from barnabas.coordinator.share.states import AcknowledgeType, AcquireMode, RecordState, ShareSettings
from barnabas.coordinator.share.writes import WriteState

__all__ = [
    "AcknowledgeType",
    "Acknowledgement",
    "Acquirable",
    "AcquireMode",
    "Acquired",
    "LogBatch",
    "PartitionState",
    "ReadBatch",
    "ReadState",
    "RecordState",
    "ResolveStart",
    "ShareKey",
    "SharePartition",
    "ShareSession",
    "ShareSessions",
    "ShareSettings",
    "ShareState",
    "StateBatch",
    "StateConfig",
    "StateRead",
    "StateShard",
    "Stored",
    "Summary",
    "Wanted",
    "WriteState",
    "aborted_ranges",
    "coordinator_key",
    "listed_batches",
    "parse_coordinator_key",
    "read_batches",
]
