"""The share partitions of one partition of `__share_group_state`, and how records become them: hard state, changed by
`replay` alone.
"""

from __future__ import annotations

from barnabas.coordinator.group.topics import NO_TOPICS, Topics
from barnabas.coordinator.share.batches import merge
from barnabas.coordinator.share.state_stored import NOT_KNOWN, ShareChange, ShareKey, ShareState, Snapshot, parse_share


class StoredPartition:
    """What is stored of one share partition. `updates`: how many follow the last snapshot, which is at
    `snapshot_offset`.
    """

    __slots__ = ("snapshot_offset", "state", "updates")

    def __init__(self, state: ShareState, snapshot_offset: int) -> None:
        self.state = state
        self.updates = 0
        self.snapshot_offset = snapshot_offset


class StateStore:
    """See the module. partitions: by key. topics: of the cluster. removed_offset: of the last tombstone. is_gone: the
    partition is led elsewhere; nothing is decided any more.
    """

    __slots__ = ("is_gone", "partitions", "removed_offset", "topics")

    def __init__(self) -> None:
        self.partitions: dict[ShareKey, StoredPartition] = {}
        self.topics: Topics = NO_TOPICS
        self.removed_offset = -1
        self.is_gone = False

    def replay(self, key: bytes | memoryview, value: bytes | memoryview | None, record_offset: int) -> None:
        """One record of the log, live or on load. Raises `barnabas.kproto.DecodeError`; nothing changed then."""
        record = parse_share(key, value)
        if record is None:
            return
        if not isinstance(record, Snapshot):
            found = self.partitions.get(record.key)
            if found is None:
                # The snapshot was cut off, or cannot be read: it is better than nothing.
                nothing = ShareState(record.change.snapshot_epoch, 0, 0, NOT_KNOWN, NOT_KNOWN, 0, 0)
                found = self.partitions[record.key] = StoredPartition(nothing, record_offset)
            found.state = changed(found.state, record.change)
            found.updates += 1
        elif record.state is None:
            self.partitions.pop(record.key, None)
            self.removed_offset = record_offset
        else:
            # Not as a log may say that others have made: the fence against former leaders never falls.
            before = self.partitions.get(record.key)
            leader_epoch = record.state.leader_epoch
            if before is not None:
                leader_epoch = max(leader_epoch, before.state.leader_epoch)
            state = record.state._replace(leader_epoch=leader_epoch)
            self.partitions[record.key] = StoredPartition(state, record_offset)

    def exists(self, key: ShareKey) -> bool:
        """Whether the cluster has the partition."""
        topic = self.topics.by_id.get(key.topic_id)
        return topic is not None and 0 <= key.partition < topic.partition_count


def changed(state: ShareState, change: ShareChange) -> ShareState:
    """The state after a write."""
    start_offset = state.start_offset if change.start_offset == NOT_KNOWN else change.start_offset
    return state._replace(
        leader_epoch=max(state.leader_epoch, change.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=change.delivery_complete_count,
        batches=merge(start_offset, (*state.batches, *change.batches)),
    )
