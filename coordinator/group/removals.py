"""The end of committed offsets, and of groups that have nothing left: DeleteGroups, expiry, deleted topics.

Everything goes by tombstones. What there may be much of comes as several results, to be handled in order; between two
of them others may be asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any

from barnabas.coordinator.commit_records import TopicPartition
from barnabas.coordinator.group.answers import commit_write_error
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.states import State
from barnabas.coordinator.group.store import Group, GroupStore
from barnabas.coordinator.group.subscriptions import CONSUMER
from barnabas.coordinator.machine import Decision, Now, Result, answer
from barnabas.coordinator.stored import group_record, offset_record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")

_REMOVALS_PER_BATCH = 1_000
"""Keeps a batch of tombstones far below `message.max.bytes`, whatever the names' lengths (at most 249 + 32767 bytes,
in practice 50).
"""


class Removals:
    """See the module."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    def delete_group(self, group_id: str, token: Any, now: Now) -> Iterator[Result]:
        """DeleteGroups, for one group. Answers an `ErrorCode`. Several results, to be handled in order, when it has
        many offsets.
        """
        shares = self._store.shares
        if shares is not None and group_id in shares.groups:
            yield shares.delete_group(group_id, token)
            return
        group = self._store.groups.get(group_id)
        if group is None or group_id in self._store.foreign:
            yield answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if not group.is_empty:
            yield answer(token, ErrorCode.NON_EMPTY_GROUP)
            return
        had_offsets = bool(group.offsets)
        records = [offset_record(group_id, *partition, None) for partition in group.offsets.touched()]
        if not isinstance(group, ClassicGroup):
            records.extend(group.removal_records())
        elif group.stored is not None or had_offsets:
            # Also for one that never had a member: by its offsets, Apache Kafka makes a group of it.
            records.append(group_record(group_id, None))
        log.info("group %r is deleted, with %d offsets", group_id, len(group.offsets))
        while len(records) > _REMOVALS_PER_BATCH:
            yield Result(records[:_REMOVALS_PER_BATCH])
            del records[:_REMOVALS_PER_BATCH]
        out = Decision()
        out.records.extend(records)
        out.reply_when_committed(token, ErrorCode.NONE, commit_write_error)
        if not records and isinstance(group, ClassicGroup):
            self._drop(group, now, out)
        yield out.result()

    def expire_offsets(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up (KIP-211): expired offsets, then groups that have nothing left."""
        retention_ms = self._store.context.config.offsets_retention_ms
        for group in list(self._store.groups.values()):
            if group.group_id in self._store.foreign:
                continue
            gone = _expired(group, now.wall_ms, retention_ms)
            yield from self._remove_offsets(group, gone, now)
            if gone:
                log.info("group %r: %d offsets expired", group.group_id, len(gone))

    def topics_deleted(self, topics: Collection[str], now: Now) -> Iterator[Result]:
        """Topics are gone from the cluster, and with them what groups committed for them."""
        for group in list(self._store.groups.values()):
            gone = [partition for partition in group.offsets.touched() if partition[0] in topics]
            if gone:
                yield from self._remove_offsets(group, gone, now)
        if self._store.shares is not None:
            yield from self._store.shares.topics_deleted(topics)

    def _remove_offsets(self, group: Group, gone: list[TopicPartition], now: Now) -> Iterator[Result]:
        for start in range(0, len(gone), _REMOVALS_PER_BATCH):
            batch = gone[start : start + _REMOVALS_PER_BATCH]
            yield Result([offset_record(group.group_id, *partition, None) for partition in batch])
        if not group.is_empty or group.offsets or group.group_id in self._store.foreign:
            return
        if not isinstance(group, ClassicGroup):
            yield Result(list(group.removal_records()))
            return
        if group.members.pending:
            return
        if group.stored is not None or gone:
            yield Result([group_record(group.group_id, None)])
        if group.stored is None and self._store.groups.get(group.group_id) is group:
            out = Decision()
            self._drop(group, now, out)
            yield out.result()

    def _drop(self, group: ClassicGroup, now: Now, out: Decision) -> None:
        """Forget a group that has nothing in the log."""
        group.delete(now, out)
        self._store.groups.pop(group.group_id, None)


def _expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The expired offsets of `group`, by the kind of group."""
    if not isinstance(group, ClassicGroup):
        return group.offsets.expired(now_ms, retention_ms, None, group.subscribed)
    if group.protocol_type is None:
        # A consumer that assigns partitions to itself: no state shows whether it is alive.
        return group.offsets.expired(now_ms, retention_ms, None, ())
    if group.state is State.EMPTY:
        since_ms = None if group.state_time_ms == -1 else group.state_time_ms
        return group.offsets.expired(now_ms, retention_ms, since_ms, ())
    if group.state is State.STABLE and group.protocol_type == CONSUMER and group.subscribed is not None:
        return group.offsets.expired(now_ms, retention_ms, None, group.subscribed)
    return []
