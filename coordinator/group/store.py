"""The groups of one partition of `__consumer_offsets`, and how records become groups: hard state, changed by `replay`
alone.

`committed_to` is the high watermark of the partition: what lies behind it may still be lost.
"""

from __future__ import annotations

from coordinator.group.classic import ClassicGroup
from coordinator.group.config import GroupConfig
from coordinator.group.rebalance import Due
from coordinator.machine import Deadlines, Decision, Now, Result
from coordinator.stored import GroupRecord, OffsetRecord, parse


class GroupStore:
    """See the module. Hard: `ClassicGroup.stored` and `.offsets` of every group. Soft: the rest."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.groups: dict[str, ClassicGroup] = {}
        self._deadlines: Deadlines[tuple[str, Due, str]] = Deadlines()
        self._open_transactions: dict[int, set[str]] = {}

    def set_config(self, config: GroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.config = config
        for group in self.groups.values():
            group.config = config

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self.config, self._deadlines)
        return group

    # -- replay -----------------------------------------------------------------------------------

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int = -1,
    ) -> None:
        """One record of the log. `producer_id`: of its batch if that is transactional. Raises `kproto.DecodeError`;
        nothing changed then.
        """
        record = parse(key, value)
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, committed_to, producer_id)
        elif isinstance(record, GroupRecord):
            if record.stored is None and record.group_id not in self.groups:
                return
            group = self._group(record.group_id)
            group.replay_stored(record.stored)
            self._forget_if_void(group)

    def _replay_offset(self, record: OffsetRecord, record_offset: int, committed_to: int, producer_id: int) -> None:
        group_id, partition = record.group_id, (record.topic, record.partition)
        if record.committed is None and group_id not in self.groups:
            return
        group = self._group(group_id)
        if producer_id >= 0:
            group.offsets.put_pending(producer_id, partition, record.committed, record_offset)
            self._open_transactions.setdefault(producer_id, set()).add(group_id)
        elif record.committed is not None:
            group.offsets.put(partition, record.committed, record_offset, committed_to)
        else:
            group.offsets.remove(partition)
            self._forget_if_void(group)

    def replay_end_of_transaction(self, producer_id: int, committed: bool) -> None:
        """A control batch of the log: the commits of this producer's transaction become real or vanish."""
        for group_id in self._open_transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed)
                self._forget_if_void(group)

    def loaded(self, now: Now) -> Result:
        """The log was replayed: bring the stored generations to life."""
        out = Decision()
        for group in list(self.groups.values()):
            group.restore(now, out)
        return out.result()

    def unload(self, now: Now) -> Result:
        """The partition is led elsewhere: everybody who waits gets NOT_COORDINATOR; the shard is at its end."""
        out = Decision()
        for group in self.groups.values():
            group.unload(now, out)
        self.groups.clear()
        return out.result()

    def _done(self, group: ClassicGroup, out: Decision) -> Result:
        """End an operation that may have left nothing of `group`. Once it had a generation, only a tombstone or the
        periodic clean-up forgets it, so that generations rise.
        """
        if group.generation == 0:
            self._forget_if_void(group)
        return out.result()

    def _forget_if_void(self, group: ClassicGroup) -> None:
        if group.is_void and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
