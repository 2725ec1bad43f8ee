"""Fetches: reading the partitions of one request, waiting for more, and the answer.

A `Reader` (`barnabas.server.requests.fetch.readers`) reads each partition for one kind of fetcher.

A fetch that finds too little waits as a callback on its partitions plus a timer. No append can come between the read
and the wait: there is no checkpoint between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.logdir import FileSlice, StorageError
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.api import PENDING
from barnabas.server.requests.fetch.reader import Answer, Reader, partition_error, without_records
from barnabas.server.requests.fetch.scope import Scope
from barnabas.server.requests.fetch.sessions import NOT_SENT, FetchSession, FetchTarget
from barnabas.server.requests.fetch.targets import find_partition
from barnabas.server.requests.leader_hints import HINTED_IN_FETCH, LeaderHints
from barnabas.server.requests.services import Services

_ANSWER_BYTES = 17
_PARTITION_BYTES = 50
"""The size of an answer, and of a partition in it, without the records: an estimate for quotas."""

Plan = tuple[list[Answer], int, bool]
"""The answers, the bytes in them, and whether to send them immediately."""


class Slot(Protocol):
    """Where the response goes: a `RequestContext`, or a substitute."""

    api_version: int

    @property
    def listener(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def reply(self, response: Any) -> None: ...

    def on_close(self, callback: Callable[[], None]) -> None: ...

    def release_waiters(self) -> str: ...

    def withholds(self, size: int) -> bool: ...


class Fetch:
    """One request: its targets, and while it waits the partitions that notify it of progress. `shortcut`: answers
    it, if that is simple, for a fast path.
    """

    __slots__ = (
        "ctx",
        "incremental",
        "max_bytes",
        "min_bytes",
        "missing_bytes",
        "reader",
        "session",
        "shortcut",
        "svc",
        "targets",
        "timer",
        "watched",
    )

    def __init__(self, svc: Services, ctx: Slot, req: FetchRequest, scope: Scope, reader: Reader) -> None:
        self.svc = svc
        self.ctx = ctx
        self.targets, self.session, self.incremental = scope
        self.reader = reader
        self.max_bytes = min(req.max_bytes, svc.config.get_int("fetch.max.bytes"))
        self.min_bytes = min(req.min_bytes, self.max_bytes)
        self.timer: Any = None
        self.watched: list[Partition] = []
        self.missing_bytes = 0
        self.shortcut: Callable[[], bool] | None = None

    def limit(self, bytes_max: float | None) -> None:
        """Limit the response to `bytes_max`."""
        if bytes_max is not None:
            self.max_bytes = min(self.max_bytes, int(bytes_max))
            self.min_bytes = min(self.min_bytes, self.max_bytes)

    def start(self, max_wait_ms: int) -> object:
        answers, size, at_once = self.read_targets(self.targets.values(), 0, True)
        if size >= self.min_bytes or at_once or max_wait_ms <= 0 or not self.targets or (size and has_more(answers)):
            return self.answer(answers)
        self.missing_bytes = self.min_bytes - size
        for partition in self.watched:
            self.reader.watch(partition, self)
        self.timer = self.svc.timers.after(max_wait_ms / 1000, self.answer_now)
        self.ctx.on_close(self._unlink)
        return PENDING

    def progress(self, added_bytes: int) -> None:
        """Part of `ProgressWaiter`."""
        if not self.watched:
            return  # answered already, by an earlier notification
        self.missing_bytes -= added_bytes
        # The end of a transaction is a few bytes, and makes all of it readable.
        if added_bytes and self.missing_bytes > 0 and not self.reader.read_committed:
            return
        if self.shortcut is not None and self.shortcut():
            self._unlink()
            return
        answers, size, at_once = self._plan_again()
        if size >= self.min_bytes or at_once or (size and has_more(answers)):
            self._finish(answers)
        else:
            self.missing_bytes = self.min_bytes - size

    def answer_now(self) -> None:
        """Part of `ProgressWaiter`: the time is over, or the broker stops."""
        self._finish(self._plan_again()[0])

    def _finish(self, answers: list[Answer]) -> None:
        self._unlink()
        self.ctx.reply(self.answer(answers))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        self._unlink()
        return self.ctx.release_waiters()

    def _unlink(self) -> None:
        for partition in self.watched:
            partition.remove_waiter(self)
        self.watched = []
        if self.timer is not None:
            self.timer.cancel()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _plan_again(self) -> Plan:
        """Read all targets again."""
        self.reader.read_again()
        return self.read_targets(self.targets.values(), 0, False)

    def read_targets(self, targets: Iterable[FetchTarget], size: int, first_wait: bool) -> Plan:
        """Read some targets, after others with `size` bytes. first_wait: note the partitions to wait for."""
        left_bytes = self.max_bytes - size
        at_once = False
        answers: list[Answer] = []
        incremental = self.incremental
        reader = self.reader
        for target in targets:
            try:
                partition = target.partition
                if partition is None or not partition.is_leader:
                    partition = target.partition = find_partition(self.svc, target)
                if first_wait:
                    self.watched.append(partition)
                if incremental and reader.is_quiet(partition, target):
                    continue
                data, is_urgent = reader.read(partition, target, left_bytes, size == 0)
            except KafkaError as error:
                at_once = True
                data = self._failed(target, error, size)
            else:
                if data is None:
                    continue
                found = len(data.records)
                size += found
                left_bytes -= found
                if is_urgent:
                    at_once = True
            answers.append((target, data))
        return answers, size, at_once

    def _failed(self, target: FetchTarget, error: KafkaError, size: int) -> Any:
        """The answer for a partition that failed. size: bytes found in other partitions."""
        code = error.code
        partition = target.partition
        if size and partition is not None and isinstance(error, StorageError) and error.is_ours:
            # The limit of open files: answer with what was read first, as when a response is full.
            return without_records(partition, target)
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self.ctx.api_version < 6:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # older clients retry after it
        return partition_error(target, code)

    # -- answering ---------------------------------------------------------------------------------------------------

    def answer(self, answers: list[Answer]) -> FetchResponse:
        """The response; an empty one, without any change of the session, if the client is over its quota."""
        if self.svc.quotas.limits_requests:
            empty = self.withheld(answers)
            if empty is not None:
                return empty
        return self.respond(answers)

    def withheld(self, answers: list[Answer]) -> FetchResponse | None:
        """The empty response, if the client is over its quota; None: it is not. It opens no session."""
        size = _ANSWER_BYTES
        for _, data in answers:
            if data.records or data.error_code:
                size += _PARTITION_BYTES + len(data.records or b"")
        if not self.ctx.withholds(size):
            return None
        session = self.session
        if session is None:
            return FetchResponse()
        if self.incremental:
            return FetchResponse(session_id=session.session_id)
        self.svc.fetch_sessions.close(session.session_id)
        return FetchResponse()

    def respond(self, answers: list[Answer]) -> FetchResponse:
        self.reader.answering(answers)
        session = self.session
        session_id = 0
        if session is not None:
            session_id = session.session_id
            answers = _note_sent(session, answers, self.incremental)
        by_topic: dict[Any, Any] = {}
        responses = []
        hints = None
        for target, data in answers:
            name = target.key[0]
            topic = by_topic.get(name)
            if topic is None:
                topic = by_topic[name] = FetchResponse.FetchableTopicResponse(
                    topic=target.topic or "", topic_id=target.topic_id, partitions=[]
                )
                responses.append(topic)
            topic.partitions.append(data)
            if data.error_code and data.error_code in HINTED_IN_FETCH and self.ctx.api_version >= 16:
                if hints is None:
                    hints = LeaderHints(self.svc, self.ctx.listener)
                data.current_leader = FetchResponse.LeaderIdAndEpoch()
                hints.fill(data.current_leader, target.topic, target.topic_id, target.index)
        response = FetchResponse(session_id=session_id, responses=responses)
        if hints is not None:
            response.node_endpoints = hints.endpoints(FetchResponse.NodeEndpoint)
        return response


def has_more(answers: list[Answer]) -> bool:
    """Whether the log continues in another segment: then waiting would add nothing to the slice."""
    return any(
        isinstance(data.records, FileSlice)
        and target.partition is not None
        and not target.partition.log.is_at_end(data.records)
        for target, data in answers
    )


def _note_sent(session: FetchSession, answers: list[Answer], incremental: bool) -> list[Answer]:
    """Remember what was sent in the session; of an incremental answer keep only what has changed."""
    kept = []
    targets = session.targets
    for answer in answers:
        target, data = answer
        news = not incremental
        if data.records is not None and len(data.records):
            news = True
            # A partition with data goes to the end of the queue, so that a response limit does not starve the others.
            if target.key in targets:
                targets[target.key] = targets.pop(target.key)
        if data.error_code:
            news = True
            target.sent_high_watermark = NOT_SENT  # sent again when the error is over
        else:
            if (
                data.high_watermark != target.sent_high_watermark
                or data.log_start_offset != target.sent_log_start_offset
            ):
                news = True
                target.sent_high_watermark = data.high_watermark
                target.sent_log_start_offset = data.log_start_offset
            if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                news = True
        if news:
            kept.append(answer)
    return kept
