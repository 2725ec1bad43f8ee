"""Fetch (key 1, versions 0-18): read record batches, waiting for them if asked to.

Behaviour: consumers read up to the high watermark, `read_committed` ones up to the last stable offset. The answer
holds slices of segment files, no bytes are read here. It is given at once when `min_bytes` are there, when any
partition has an error or a diverging epoch, or when `max_wait_ms` is 0; otherwise the request waits as a callback on
its partitions plus a timer, and is planned anew when enough bytes have come or the time is over. Limits are soft: the
first batch of the first non-empty partition is always returned whole. Sessions (v7+): see `server.fetch_sessions`.

Versions: 0-1 get message sets of format 0, 2-3 of format 1, converted by a task (`server.legacy`); 3 soft limits and
one for the whole answer; 4 batches as they are stored; 5 log start offset; 6 storage errors by their name, which are
error 6 before; 7 sessions; 9 leader epochs (74, 75); 10 zstd: topics with `compression.type=zstd` answer 76 before; 11
rack; 12 flexible, diverging epochs; 13 topic ids (100, 106); 15 replica state in a tag; 16 node endpoints (filled with
the cluster); 17 directory ids; 18 high watermark of the fetcher (for followers).

Not done: fetches of followers (replica id >= 0; they come with the cluster); aborted-transaction lists (with
transactions; until then there are none); preferred read replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import trio

from kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from kproto.messages import FetchRequest, FetchResponse
from server.api import PENDING, Api, Old
from server.context import RequestContext
from server.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchTarget, TargetKey
from server.legacy import RESPONSE_BYTES_MAX, Budget, down_converted, fair_order
from server.partition import Partition
from server.services import Services

READ_COMMITTED = 1

_PartitionData = FetchResponse.PartitionData
_Answer = tuple[FetchTarget, FetchResponse.PartitionData]


class _Fetch:
    """One request: its targets, and while it waits the partitions that shall tell of progress."""

    __slots__ = (
        "ctx",
        "incremental",
        "max_bytes",
        "min_bytes",
        "missing_bytes",
        "read_committed",
        "session",
        "svc",
        "targets",
        "timer",
        "watched",
    )

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        req: FetchRequest,
        targets: dict[TargetKey, FetchTarget],
        session: FetchSession | None,
        incremental: bool,
    ) -> None:
        self.svc = svc
        self.incremental = incremental
        self.ctx = ctx
        self.targets = targets
        self.session = session
        self.max_bytes = min(req.max_bytes, svc.config.int("fetch.max.bytes"))
        self.min_bytes = min(req.min_bytes, self.max_bytes)
        self.read_committed = req.isolation_level == READ_COMMITTED
        self.timer: Any = None
        self.watched: list[Partition] = []
        self.missing_bytes = 0

    def start(self, max_wait_ms: int) -> object:
        answers, size, at_once = self._plan()
        if size >= self.min_bytes or at_once or max_wait_ms <= 0 or not self.targets:
            return self._respond(answers)
        # Nothing can slip in between the look and the wait: there is no checkpoint between the two.
        self.missing_bytes = self.min_bytes - size
        for partition in self.watched:
            partition.add_waiter(self)
        self.timer = self.svc.timers.after(max_wait_ms / 1000, self._expired)
        self.ctx.on_close(self._unlink)
        return PENDING

    def progress(self, added_bytes: int) -> None:
        """Part of `ProgressWaiter`."""
        self.missing_bytes -= added_bytes
        if added_bytes and self.missing_bytes > 0:
            return
        answers, size, at_once = self._plan()
        if size >= self.min_bytes or at_once:
            self._finish(answers)
        else:
            self.missing_bytes = self.min_bytes - size

    def _expired(self) -> None:
        self._finish(self._plan()[0])

    def _finish(self, answers: list[_Answer]) -> None:
        self._unlink()
        self.ctx.reply(self._respond(answers))

    def _unlink(self) -> None:
        for partition in self.watched:
            partition.remove_waiter(self)
        self.watched = []
        if self.timer is not None:
            self.timer.cancel()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _plan(self) -> tuple[list[_Answer], int, bool]:
        """Read everything once: the answers, their bytes, and whether something must be told at once."""
        left_bytes = self.max_bytes
        size = 0
        at_once = False
        answers: list[_Answer] = []
        first_wait = not self.watched
        incremental = self.incremental
        for target in self.targets.values():
            try:
                partition = target.partition
                if partition is None or not partition.is_leader:
                    partition = target.partition = self._partition(target)
                if first_wait:
                    self.watched.append(partition)
                if incremental and _is_quiet(partition, target):
                    continue
                data = self._read(partition, target, left_bytes, size == 0)
            except KafkaError as error:
                at_once = True
                code = error.code
                if code == ErrorCode.KAFKA_STORAGE_ERROR and self.ctx.api_version < 6:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # which older clients know to retry
                data = _error(target, code)
            else:
                read = len(data.records)
                size += read
                left_bytes -= read
                if data.diverging_epoch.epoch >= 0:
                    at_once = True
            answers.append((target, data))
        return answers, size, at_once

    def _partition(self, target: FetchTarget) -> Partition:
        topic = target.topic
        if topic is not None:
            partition = self.svc.partitions.get(topic, target.index)
            if target.topic_id != ZERO_UUID and partition.topic_id != target.topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            return partition
        return self.svc.partitions.get_by_id(target.topic_id, target.index)

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if not partition.is_leader or target.current_leader_epoch >= 0:
            partition.check_leader_epoch(target.current_leader_epoch)
        high_watermark = partition.high_watermark
        last_stable_offset = partition.last_stable_offset
        offset = target.fetch_offset
        # A session may have been begun by a newer request than this one, which has no place for such an answer.
        if target.last_fetched_epoch >= 0 and self.ctx.api_version >= 12:
            diverging = self._diverging(partition, target)
            if diverging is not None:
                return diverging
        records = partition.read(
            offset,
            min(target.max_bytes, left_bytes),
            upper_offset=last_stable_offset if self.read_committed else high_watermark,
            min_one_batch=first,
        )
        return _PartitionData(
            partition_index=target.index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if self.read_committed else None,
            records=b"" if records is None else records,
        )

    @staticmethod
    def _diverging(partition: Partition, target: FetchTarget) -> Any:
        """The fetcher's last epoch ended earlier here than it believes (KIP-595): tell it where to truncate to."""
        epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
            return _PartitionData(
                partition_index=target.index,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log_start_offset,
                diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset),
                records=b"",
            )
        return None

    # -- answering ---------------------------------------------------------------------------------------------------

    def _respond(self, answers: list[_Answer]) -> FetchResponse:
        session = self.session
        session_id = 0
        if session is not None:
            session_id = session.session_id
            answers = _note_sent(session, answers, self.incremental)
        by_topic: dict[Any, Any] = {}
        responses = []
        for target, data in answers:
            name = target.key[0]
            topic = by_topic.get(name)
            if topic is None:
                topic = by_topic[name] = FetchResponse.FetchableTopicResponse(
                    topic=target.topic or "", topic_id=target.topic_id, partitions=[]
                )
                responses.append(topic)
            topic.partitions.append(data)
        return FetchResponse(session_id=session_id, responses=responses)


class _FetchBelow10(_Fetch):
    """By clients who do not know zstd. Of a topic that takes any codec they get what there is, as from Apache
    Kafka.
    """

    __slots__ = ()

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if partition.log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return super()._read(partition, target, left_bytes, first)


class _FetchBelow4(_FetchBelow10):
    """By clients whose records must be converted: every partition with records gets a whole batch to convert, whose
    messages may then be more than fit. `answers`: what was planned last.
    """

    __slots__ = ("answers", "hard_limits")

    def __init__(self, svc: Services, ctx: Any, req: FetchRequest) -> None:
        super().__init__(svc, ctx, req, dict(_targets(req.topics, False)), None, False)
        self.hard_limits = ctx.api_version < 3
        self.answers: list[_Answer] = []

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if not partition.log.config.message_downconversion_enable:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        first = target.max_bytes > 0 if self.hard_limits else first
        return super()._read(partition, target, min(left_bytes, RESPONSE_BYTES_MAX), first)

    def _respond(self, answers: list[_Answer]) -> FetchResponse:
        self.answers = answers
        return super()._respond(answers)


class _Waiting:
    """Stands in for the context of an old request whose task waits for the response to convert it."""

    __slots__ = ("_ctx", "_done", "api_version", "response")

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._done = trio.Event()
        self.api_version = ctx.api_version
        self.response: FetchResponse | None = None

    def reply(self, response: FetchResponse) -> None:
        self.response = response
        self._done.set()

    def on_close(self, callback: Callable[[], None]) -> None:
        def closed() -> None:
            callback()
            self._done.set()

        self._ctx.on_close(closed)

    async def wait(self) -> FetchResponse | None:
        """The response; None if the client is gone."""
        await self._done.wait()
        return self.response


def _is_quiet(partition: Partition, target: FetchTarget) -> bool:
    """Nothing to read and nothing new to tell: most partitions of a large session, most of the time."""
    return (
        target.fetch_offset == partition.high_watermark == target.sent_high_watermark
        and target.sent_log_start_offset == partition.log.log_start_offset
        and target.current_leader_epoch in (-1, partition.leader_epoch)
        and target.last_fetched_epoch in (-1, partition.leader_epoch)
    )


def _note_sent(session: FetchSession, answers: list[_Answer], incremental: bool) -> list[_Answer]:
    """Remember what the session's client will know; of an incremental answer keep only what is new to it."""
    kept = []
    targets = session.targets
    for answer in answers:
        target, data = answer
        news = not incremental
        if data.records is not None and len(data.records):
            news = True
            # Whoever got data goes to the end of the queue, so that a response limit does not starve the others.
            if target.key in targets:
                targets[target.key] = targets.pop(target.key)
        if data.error_code:
            news = True
            target.sent_high_watermark = -2  # mentioned again when the error is over
        else:
            if (
                data.high_watermark != target.sent_high_watermark
                or data.log_start_offset != target.sent_log_start_offset
            ):
                news = True
                target.sent_high_watermark = data.high_watermark
                target.sent_log_start_offset = data.log_start_offset
            if data.diverging_epoch.epoch >= 0:
                news = True
        if news:
            kept.append(answer)
    return kept


def handle(svc: Services, ctx: RequestContext, req: FetchRequest) -> object:
    version = ctx.api_version
    _refuse_followers(req.replica_state.replica_id if version >= 15 else req.replica_id)
    by_id = version >= 13
    epoch = req.session_epoch
    sessions = svc.fetch_sessions
    now = svc.now()
    if version < 7 or epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if req.session_id:
            sessions.close(req.session_id)
        targets = dict(_targets(req.topics, by_id))
        session = None
        if version >= 7 and epoch == INITIAL_EPOCH:
            session = sessions.open(targets, by_id, False, now)
        kind = _Fetch if version >= 10 else _FetchBelow10
        return kind(svc, ctx, req, targets, session, False).start(req.max_wait_ms)
    try:
        session = sessions.use(req.session_id, epoch, by_id, now)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    _apply(session, req, by_id)
    session.advance()
    if not session.targets:
        sessions.close(session.session_id)
        return FetchResponse()
    kind = _Fetch if version >= 10 else _FetchBelow10
    return kind(svc, ctx, req, session.targets, session, True).start(req.max_wait_ms)


async def handle_old(svc: Services, ctx: RequestContext, req: FetchRequest) -> FetchResponse:
    """Versions 0-3: plan and wait as the others do, then convert."""
    _refuse_followers(req.replica_id)
    waiting = _Waiting(ctx)
    fetch = _FetchBelow4(svc, waiting, req)
    started = fetch.start(req.max_wait_ms)
    response = await waiting.wait() if started is PENDING else started
    if not isinstance(response, FetchResponse):
        return FetchResponse()  # for nobody
    answers: Iterable[_Answer] = fetch.answers
    budget = Budget()
    budget.left = min(budget.left, fetch.max_bytes)
    if fetch.hard_limits:
        answers = fair_order(fetch.answers, ctx.correlation_id)
    first = True
    for target, data in answers:
        stored: Any = data.records
        data.records = b""
        partition = target.partition
        if not len(stored) or partition is None or (budget.left <= 0 and not first) or ctx.closed:
            continue
        try:
            data.records = await down_converted(
                partition,
                stored,
                magic=0 if ctx.api_version < 2 else 1,
                offset=target.fetch_offset,
                max_bytes=target.max_bytes,
                one_at_least=first and not fetch.hard_limits,
                budget=budget,
            )
        except KafkaError as error:
            failed = _error(target, error.code)
            data.error_code, data.high_watermark = failed.error_code, failed.high_watermark
        first = first and not data.records
    return response


def _refuse_followers(replica_id: int) -> None:
    if replica_id >= 0:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has no followers")


def _error(target: FetchTarget, code: ErrorCode) -> Any:
    return _PartitionData(partition_index=target.index, error_code=code, high_watermark=-1, records=b"")


def _targets(topics: Iterable[FetchRequest.FetchTopic], by_id: bool) -> Iterable[tuple[TargetKey, FetchTarget]]:
    for topic in topics:
        for asked in topic.partitions:
            target = _target(topic, asked.partition, by_id)
            _ask(target, asked)
            yield target.key, target


def _target(topic: FetchRequest.FetchTopic, index: int, by_id: bool) -> FetchTarget:
    return FetchTarget(None, topic.topic_id, index) if by_id else FetchTarget(topic.topic, ZERO_UUID, index)


def _ask(target: FetchTarget, asked: FetchRequest.FetchPartition) -> None:
    target.current_leader_epoch = asked.current_leader_epoch
    target.fetch_offset = asked.fetch_offset
    target.last_fetched_epoch = asked.last_fetched_epoch
    target.log_start_offset = asked.log_start_offset
    target.max_bytes = asked.partition_max_bytes


def _apply(session: FetchSession, req: FetchRequest, by_id: bool) -> None:
    """Put the changes of an incremental request into the session."""
    targets = session.targets
    for topic in req.topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            target = targets.get((name, asked.partition))
            if target is None:
                target = targets[name, asked.partition] = _target(topic, asked.partition, by_id)
            _ask(target, asked)
    for forgotten in req.forgotten_topics_data:
        name = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            targets.pop((name, index), None)


def _on_error(req: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """Before v7 there is no error of the whole answer: every partition carries it."""
    if version >= 7:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
                    for asked in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(ApiKey.FETCH, (0, 18), handle, old=Old(3, handle_old), on_error=_on_error)
