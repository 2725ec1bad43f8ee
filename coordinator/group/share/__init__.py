"""Share groups (KIP-932) as their coordinator has them: members, epochs, who is to have which partitions, and which
partitions the share coordinator has been told of. What becomes of records is `barnabas.coordinator.share`'s.

    groups.py       the share groups of one partition of `__consumer_offsets`: the operations, and which group is meant
    group.py        one group: heartbeats, leaving, the partitions it begins with
    state.py        one group as the log has it
    stored.py       its records
    assignor.py     who gets which partitions

Not obvious:

- No partition is ever revoked before another member gets it, as it may have several: members jump to the target. Locks
  of records are what protects them, and the leader of a partition never asks who is assigned to it.
- A partition is assigned when the share coordinator has initialized it, which an effect asks for. So a group's first
  target is empty; the next one comes when the answer is there.

This is the face; it is not part of the package's, so that a broker without share groups need not load it.
"""

from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.group import check_member_id, check_share_heartbeat
from barnabas.coordinator.group.share.groups import ShareGroups
from barnabas.coordinator.group.share.partitions import Codes, DeleteState, InitializeState, Place

__all__ = [
    "Codes",
    "DeleteState",
    "InitializeState",
    "Place",
    "ShareGroupConfig",
    "ShareGroups",
    "check_member_id",
    "check_share_heartbeat",
]
