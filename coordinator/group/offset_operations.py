"""Committed offsets of the groups of one partition: commit, fetch, delete. How they expire is in `removals`.

Operations take plain values, an opaque token and `now`; see `barnabas.coordinator.machine`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

from barnabas.coordinator.commit_records import CommitLayout, CommitRecords, RepeatedCommit, TopicPartition
from barnabas.coordinator.group.answers import commit_write_error
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.group.subscriptions import CONSUMER
from barnabas.coordinator.machine import Decision, Now, Record, Reply, Result, answer
from barnabas.coordinator.stored import CommittedOffset, OffsetRecords, fits, offset_record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")

_NEVER_MS = (1 << 63) - 1
_new_tuple = tuple.__new__


class OffsetToCommit(NamedTuple):
    """One partition of a commit. `leader_epoch` and `commit_time_ms` -1: not known (the latter: taken from the
    broker's clock).
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_time_ms: int = -1


class FetchedOffset(NamedTuple):
    """One partition of an answer to OffsetFetch. `offset` -1: nothing committed. `error`: NONE or
    UNSTABLE_OFFSET_COMMIT.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class OffsetOperations:
    """See the module."""

    def __init__(self, store: GroupStore) -> None:
        self._groups = store.groups
        self._foreign = store.foreign
        self._context = store.context

    def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        retention_ms: int,
        offsets: Sequence[OffsetToCommit],
        token: Any,
        now: Now,
        *,
        version: int = 9,
    ) -> Result:
        """OffsetCommit. `retention_ms` -1: the broker's. Answers a list of `ErrorCode`, one for each of `offsets`."""
        refusal = self._refusal(
            group_id, generation, member_id, instance_id, self._wanted(offsets), now, version=version
        )
        if refusal is not None:
            return answer(token, [refusal] * len(offsets))
        expire_time_ms = -1 if retention_ms == -1 else min(now.wall_ms + retention_ms, _NEVER_MS)
        return self._commit(group_id, offsets, expire_time_ms, token, now)

    def commit_in_transaction(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        token: Any,
        now: Now,
    ) -> Result:
        """TxnOffsetCommit; the records are to be written as part of the producer's transaction. Before version 3 of the
        request it has no member, generation -1. Answers a list of `ErrorCode`, one for each of `offsets`.
        """
        refusal = self._refusal(
            group_id, generation, member_id, instance_id, self._wanted(offsets), now, version=0, is_transactional=True
        )
        if refusal is not None:
            return answer(token, [refusal] * len(offsets))
        return self._commit(group_id, offsets, -1, token, now)

    def commit_again(
        self, commit: RepeatedCommit, offsets: Sequence[int], leader_epochs: Sequence[int], token: Any, now: Now
    ) -> Result | None:
        """An OffsetCommit for partitions that have been committed before, with the broker's retention and time. Answers
        `ErrorCode.NONE`, or the one code of all partitions. None: it is refused, and `commit` says why.
        """
        layout, generation, member_id, instance_id, version = commit
        if layout.has_metadata:
            limit = self._context.config.offset_metadata_max_bytes
            if any(_is_too_large(each, limit) for each in layout.metadata):
                return None
        refusal = self._refusal(
            layout.group_id, generation, member_id, instance_id, layout.partitions, now, version=version
        )
        if refusal is not None:
            return None
        records = CommitRecords(layout, offsets, leader_epochs, (now.wall_ms,) * len(offsets))

        def failed(code: ErrorCode, appended: bool, then: Now) -> Result:
            return answer(token, commit_write_error(code))

        held = (_new_tuple(Reply, (token, ErrorCode.NONE)),)
        return _new_tuple(Result, (records, (), held, failed, None, ()))

    def _wanted(self, offsets: Iterable[OffsetToCommit]) -> Iterator[TopicPartition]:
        """The partitions without those whose offsets are rejected because of their metadata."""
        limit = self._context.config.offset_metadata_max_bytes
        return ((each.topic, each.partition) for each in offsets if not _is_too_large(each.metadata, limit))

    def _refusal(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        partitions: Iterable[TopicPartition],
        now: Now,
        *,
        version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | None:
        group = self._groups.get(group_id)
        if group is None or group_id in self._foreign:
            if generation < 0:
                return None if fits(group_id) else ErrorCode.INVALID_GROUP_ID
            if group_id in self._foreign:
                return ErrorCode.UNKNOWN_MEMBER_ID
            unknown = version >= 9 and not is_transactional
            return ErrorCode.GROUP_ID_NOT_FOUND if unknown else ErrorCode.ILLEGAL_GENERATION
        return group.check_commit(
            generation,
            member_id,
            instance_id,
            now,
            partitions=partitions,
            version=version,
            is_transactional=is_transactional,
        )

    def _commit(
        self, group_id: str, offsets: Sequence[OffsetToCommit], expire_time_ms: int, token: Any, now: Now
    ) -> Result:
        codes = [ErrorCode.NONE] * len(offsets)
        limit = self._context.config.offset_metadata_max_bytes
        accepted = offsets
        if any(_is_too_large(each.metadata, limit) for each in offsets):
            is_accepted = [not _is_too_large(each.metadata, limit) for each in offsets]
            codes = [ErrorCode.NONE if each else ErrorCode.OFFSET_METADATA_TOO_LARGE for each in is_accepted]
            accepted = list(compress(offsets, is_accepted))

        def failed(code: ErrorCode, appended: bool, then: Now) -> Result:
            mapped = commit_write_error(code)
            return answer(token, [mapped if each == ErrorCode.NONE else each for each in codes])

        records = _records(group_id, accepted, expire_time_ms, now.wall_ms) if accepted else ()
        return Result(records, held=(Reply(token, codes),), failed=failed)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the requesting member (OffsetFetch 9+) may read offsets. Groups without epochs return them
        to any client.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return ErrorCode.NONE
        return group.check_fetch(member_id, member_epoch)

    def with_offsets(self, group_id: str) -> list[TopicPartition]:
        """The partitions to pass to `fetch`, with `only_found`, for all offsets of a group; there may be very many."""
        group = self._groups.get(group_id)
        return [] if group is None else group.offsets.partitions()

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        require_stable: bool,
        committed_to: int,
        *,
        only_found: bool = False,
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group, in any state of it. only_found: leave out what has no offset."""
        group = self._groups.get(group_id)
        if group is None:
            if only_found:
                return []
            return [FetchedOffset(topic, index, -1, -1, "", ErrorCode.NONE) for topic, index in partitions]
        offsets = group.offsets
        fetched = []
        for partition in partitions:
            committed = offsets.get(partition, committed_to)
            if committed is None and only_found:
                continue
            if require_stable and offsets.is_unstable(partition, committed_to):
                fetched.append(FetchedOffset(*partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif committed is None:
                fetched.append(FetchedOffset(*partition, -1, -1, "", ErrorCode.NONE))
            else:
                fetched.append(
                    FetchedOffset(
                        *partition, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.NONE
                    )
                )
        return fetched

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], token: Any) -> Result:
        """OffsetDelete. Answers a list of `ErrorCode` for `partitions`, or one `ErrorCode` for the whole request."""
        group = self._groups.get(group_id)
        if group is None:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        if group_id in self._foreign:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed: Collection[str] | None = ()
        if not isinstance(group, ClassicGroup):
            subscribed = group.subscribed
        elif not group.is_empty:
            if group.protocol_type != CONSUMER:
                return answer(token, ErrorCode.NON_EMPTY_GROUP)
            subscribed = group.subscribed
        out = Decision()
        codes = []
        for partition in partitions:
            # A subscription that cannot be read may contain any topic.
            if subscribed is None or partition[0] in subscribed:
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if partition in group.offsets or group.offsets.is_pending(partition):
                out.records.append(offset_record(group_id, *partition, None))
        out.reply_when_committed(token, codes, commit_write_error)
        return out.result()


def _is_too_large(metadata: str | None, limit: int) -> bool:
    """Whether an offset's metadata has more UTF-16 units than `offset.metadata.max.bytes`, which is what Apache Kafka
    counts, or cannot be stored.
    """
    if not metadata:
        return False
    if metadata.isascii():
        return len(metadata) > min(limit, 32767)
    units = len(metadata) + sum(character > "\uffff" for character in metadata)
    return units > limit or not fits(metadata)


def _records(group_id: str, offsets: Sequence[OffsetToCommit], expire_time_ms: int, now_ms: int) -> Sequence[Record]:
    """The records of a commit. expire_time_ms: its own, or -1."""
    topics, indexes, numbers, leader_epochs, given, times = zip(*offsets, strict=True)
    metadata = tuple(text or "" for text in given)
    times_ms = tuple(now_ms if each == -1 else each for each in times)
    if expire_time_ms == -1:
        layout = CommitLayout(group_id, tuple(zip(topics, indexes, strict=True)), metadata)
        return CommitRecords(layout, numbers, leader_epochs, times_ms)
    record = OffsetRecords(group_id).record
    return [
        record(topic, index, CommittedOffset(number, leader_epoch, text, time_ms, expire_time_ms))
        for topic, index, number, leader_epoch, text, time_ms in zip(
            topics, indexes, numbers, leader_epochs, metadata, times_ms, strict=True
        )
    ]
