"""The groups of one partition of `__consumer_offsets`, and how records become groups: hard state, changed by `replay`
alone.

A group is classic until a record of a next-generation or a streams group comes, and such a group until the record of
its end: so one kind takes another's place in one batch of records, and the committed offsets go along. A classic group
that is only made of offsets stands in for any other.

Share and streams groups are there if they are asked for. Otherwise their records stay in the log and are not decoded,
except to know that there is such a group: no other group may then use its id. Share groups are beside the others, as
they share nothing with them but the log, the timers and the topics.

`committed_to` is the high watermark of the partition: what lies behind it may still be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.coordinator.commit_records import CommitRecords
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.states import Why
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.stored import parse_consumer_group
from barnabas.coordinator.group.context import GroupContext, SettingsOf
from barnabas.coordinator.group.deadlines import GroupDeadlines
from barnabas.coordinator.group.epochs.committing import CommittingGroup
from barnabas.coordinator.group.epochs.records import is_tombstone
from barnabas.coordinator.group.topics import Topics
from barnabas.coordinator.machine import Deadlines, Decision, Now, Record, Result
from barnabas.coordinator.stored import GroupRecord, OffsetRecord, parse

if TYPE_CHECKING:
    from barnabas.coordinator.group.share.config import ShareGroupConfig
    from barnabas.coordinator.group.share.groups import ShareGroups
    from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
    from barnabas.coordinator.group.streams.groups import StreamsGroups

log = logging.getLogger("barnabas.groups")

EpochGroup = CommittingGroup[Any, Any]
Group = ClassicGroup | EpochGroup

_KIND = Struct(">hh")
_OF_SHARE_GROUPS: Final = range(10, 16)
_SHARE_GROUP: Final = 11
_STREAMS_GROUP: Final = 17
_OF_STREAMS_GROUPS: Final = range(17, 24)


def _kind(key: bytes | memoryview) -> int:
    """The type of a record; −1: its key has none."""
    return int.from_bytes(key[:2], "big") if len(key) >= 2 else -1


class GroupStore:
    """See the module. Hard: `stored` of classic groups, the attributes of those with epochs, `offsets` of both,
    `foreign`: ids of groups of other kinds, `shares`. Soft: the rest. `groups` and `foreign` are changed, never
    replaced. `streams`: what is asked of streams groups, None while there was none.
    """

    def __init__(
        self,
        config: GroupConfig,
        settings_of: SettingsOf | None = None,
        share_config: Callable[[], ShareGroupConfig] | None = None,
        share_settings_of: SettingsOf | None = None,
        streams_config: Callable[[], StreamsGroupConfig] | None = None,
        streams_settings_of: Callable[[str], StreamsSettings | None] | None = None,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.foreign: set[str] = set()
        self.deadlines: GroupDeadlines = Deadlines()
        self.context = GroupContext(config, self.deadlines, settings_of)
        self._open_transactions: dict[int, set[str]] = {}
        self.shares: ShareGroups | None = None
        self._share_config = share_config
        self._share_settings_of = share_settings_of
        self.streams: StreamsGroups | None = None
        self._streams_config = streams_config
        self._streams_settings_of = streams_settings_of

    def wanted_shares(self) -> ShareGroups | None:
        """The share groups, from now on: what they need is loaded when one comes. None: they are not served."""
        if self.shares is None and self._share_config is not None:
            from barnabas.coordinator.group.share.groups import ShareGroups

            self.shares = ShareGroups(
                self.context, self._share_config(), self._is_no_share_group, self._share_settings_of
            )
        return self.shares

    def wanted_streams(self) -> StreamsGroups | None:
        """What is asked of streams groups: what they need is loaded when one comes. None: they are not served."""
        if self.streams is None and self._streams_config is not None:
            from barnabas.coordinator.group.streams.groups import StreamsGroups

            self.streams = StreamsGroups(
                self.groups, self.foreign, self.context, self._streams_config(), self._streams_settings_of
            )
        return self.streams

    def set_config(self, config: GroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.context.config = config
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.configure(config)

    def set_topics(self, topics: Topics, changed: Collection[str]) -> None:
        """Another image of the cluster, and the names of topics that came, went or look different in it. Groups that
        subscribe to them apply them at the next request of one of their members.
        """
        self.context.set_topics(topics, changed)
        for group in self.groups.values():
            if not isinstance(group, ClassicGroup):
                group.topics_changed(changed)
        if self.shares is not None:
            self.shares.topics_changed(changed)

    def classic_group(self, group_id: str) -> ClassicGroup:
        """The classic group of that id, made if there is none; it takes the place of another kind."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            offsets = None if group is None else group.offsets
            group = self.groups[group_id] = ClassicGroup(group_id, self.context.config, self.deadlines, offsets)
        return group

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        return self.classic_group(group_id) if group is None else group

    # -- replay -----------------------------------------------------------------------------------

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int = -1,
    ) -> None:
        """One record of the log. `producer_id`: of its batch if that is transactional. Raises
        `barnabas.kproto.DecodeError`; nothing changed then.
        """
        record = parse(key, value)
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, committed_to, producer_id)
        elif isinstance(record, GroupRecord):
            self._replay_classic(record)
        else:
            next_generation = parse_consumer_group(key, value)
            if next_generation is not None:
                self._replay_epochs(ConsumerGroup, next_generation)
                return
            streams = self.wanted_streams() if _kind(key) in _OF_STREAMS_GROUPS else None
            meaning = None if streams is None else streams.parse(key, value)
            if streams is not None and meaning is not None:
                self._replay_epochs(streams.kind, meaning)
                return
            shares = self.wanted_shares() if _kind(key) in _OF_SHARE_GROUPS else None
            share_id = None if shares is None else shares.replay_own(key, value)
            if share_id is not None:
                self._note_share(share_id)
            else:
                self._note_foreign(key, value is not None)

    def replay_decided(self, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int) -> None:
        """Records that this machine has decided, as they were appended: `replay` of each, but what is known of a record
        is not read from it again.
        """
        if isinstance(records, CommitRecords):
            self._replay_commit(records, base_offset, committed_to, producer_id)
            return
        for offset, (key, value, meaning) in enumerate(records, base_offset):
            if meaning is None:
                self.replay(key, value, offset, committed_to, producer_id)
            elif isinstance(meaning, OffsetRecord):
                self._replay_offset(meaning, offset, committed_to, producer_id)
            else:
                streams = self.wanted_streams()
                assert streams is not None
                self._replay_epochs(streams.kind, meaning)

    def _replay_commit(self, commit: CommitRecords, base_offset: int, committed_to: int, producer_id: int) -> None:
        group_id = commit.layout.group_id
        offsets = self._group(group_id).offsets
        if producer_id >= 0:
            offsets.put_all_pending(producer_id, commit.entries(base_offset))
            self._open_transactions.setdefault(producer_id, set()).add(group_id)
        elif commit.layout.is_packed:
            offsets.put_repeated(commit, base_offset, committed_to)
        else:
            offsets.put_all(commit.entries(base_offset), base_offset + len(commit.offsets) - 1, committed_to)

    def _replay_classic(self, record: GroupRecord) -> None:
        if record.stored is None and not isinstance(self.groups.get(record.group_id), ClassicGroup):
            return
        group = self.classic_group(record.group_id)
        group.replay_stored(record.stored)
        self._forget_if_void(group)

    def _replay_epochs(self, kind: type[EpochGroup], record: Any) -> None:
        """A record of a group with epochs that commits offsets. kind: its class."""
        group_id = record.group_id
        group = self.groups.get(group_id)
        if isinstance(group, kind):
            group.apply(record)
            if isinstance(record, kind.ends_with) and is_tombstone(record):
                self._end(group)
        elif not is_tombstone(record):
            before = group
            group = kind(group_id, self.context, None if before is None else before.offsets)
            if before is not None:
                before.forget()
                group.rebalances.update(before.rebalances)
            # What its first member has decided was counted by the group as it was then.
            group.rebalances[Why.JOINED if before is None else Why.PROTOCOL] += 1
            self.groups[group_id] = group
            group.apply(record)

    def _end(self, group: EpochGroup) -> None:
        """The last record of a group with epochs: its place is free."""
        group.forget()
        following = self.context.next_classic.pop(group.group_id, None)
        if following is not None:
            following.rebalances.update(group.rebalances)
            self.groups[group.group_id] = following
        else:
            del self.groups[group.group_id]
            if group.offsets:
                self.groups[group.group_id] = ClassicGroup(
                    group.group_id, self.context.config, self.deadlines, group.offsets
                )

    def _note_share(self, group_id: str) -> None:
        assert self.shares is not None
        if group_id in self.shares.groups:
            self.foreign.add(group_id)
        else:
            self.foreign.discard(group_id)

    def _is_no_share_group(self, group_id: str) -> bool:
        assert self.shares is not None
        return group_id in self.groups or (group_id in self.foreign and group_id not in self.shares.groups)

    def _note_foreign(self, key: bytes | memoryview, is_there: bool) -> None:
        if len(key) < _KIND.size:
            return
        kind, length = _KIND.unpack_from(key)
        if kind in (_SHARE_GROUP, _STREAMS_GROUP):
            group_id = bytes(key[_KIND.size : _KIND.size + length]).decode(errors="replace")
            if is_there:
                self.foreign.add(group_id)
            else:
                self.foreign.discard(group_id)

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

    def replay_end_of_transaction(
        self, producer_id: int, committed: bool, marker_offset: int, committed_to: int
    ) -> None:
        """A control batch of the log: the commits of this producer's transaction become real or vanish."""
        for group_id in self._open_transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed, marker_offset, committed_to)
                self._forget_if_void(group)

    def loaded(self, now: Now) -> Result:
        """The log was replayed: bring the stored generations to life. A group that cannot be keeps its offsets, and
        none of the others from being served.
        """
        out = Decision()
        if self.shares is not None:
            self.shares.loaded(now)
        for group in list(self.groups.values()):
            group.rebalances.clear()  # they were before
            try:
                group.restore(now, out)
            except Exception:
                log.exception("the members of group %r cannot be brought back", group.group_id)
        return out.result()

    def unload(self, now: Now) -> Result:
        """Another broker leads the partition: all waiting members get NOT_COORDINATOR; the shard has ended."""
        out = Decision()
        for group in self.groups.values():
            try:
                group.unload(now, out)
            except Exception:
                log.exception("members of group %r wait for an answer that cannot come", group.group_id)
        self.groups.clear()
        return out.result()

    def finish(self, group: Group, out: Decision) -> Result:
        """End an operation that may have left nothing of `group`. Once it had a generation, only a tombstone or the
        periodic clean-up forgets it, so that generations rise.
        """
        if isinstance(group, ClassicGroup) and group.generation == 0:
            self._forget_if_void(group)
        return out.result()

    def _forget_if_void(self, group: Group) -> None:
        if group.is_void and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
