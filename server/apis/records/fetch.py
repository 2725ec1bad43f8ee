"""Fetch (key 1, versions 0-18): read record batches, waiting for them if asked to.

Behaviour: consumers read up to the high watermark, `read_committed` ones up to the last stable offset, from the leader
or (v11+) from any replica that their metadata or the leader names; brokers that replicate read up to the log's end.
The answer holds slices of segment files, no bytes are read here. It is given at once when `min_bytes` are there, when
any partition has an error, a diverging epoch or a preferred replica, or when `max_wait_ms` is 0; otherwise the request
waits as a callback on its partitions plus a timer, and is planned again when enough bytes have come or the time is over
(`barnabas.server.requests.fetch.fetching`). Limits are soft: the first batch of the first non-empty partition is always
returned whole. Sessions (v7+): see `barnabas.server.requests.fetch.sessions`.

Followers (replica id >= 0): the offset they fetch from is what the leader knows of their progress. It may move the
high watermark and lead to a wider ISR. One that is no replica gets UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER if
it names no epoch (before v9). `leader.replication.throttled.rate` holds back those that are not in sync (KIP-73).

Versions:

- 0-1: message sets of format 0, 2-3 of format 1, converted by a task (`barnabas.server.requests.old_formats`)
- 3: soft limits, and one for the whole answer
- 4: batches as they are stored
- 5: log start offset
- 6: KAFKA_STORAGE_ERROR, which is NOT_LEADER_OR_FOLLOWER before
- 7: sessions
- 9: leader epochs (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH)
- 10: zstd; topics with `compression.type=zstd` answer UNSUPPORTED_COMPRESSION_TYPE before
- 11: rack, preferred read replica (KIP-392)
- 12: flexible; diverging epochs
- 13: topic ids (UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR)
- 15: replica state in a tag
- 16: with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH the current leader and its address
- 17: directory ids, which concern KRaft
- 18: the high watermark that the fetcher knows; a higher one is answered at once

`read_committed` gets the last stable offset and, from the transaction indexes, the aborted transactions that may have
records in what it gets; the indexes are coarse, so there may be others. Nobody else gets a list (null).

Not done: followers of versions below 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.api import PENDING, Api, Old
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.fetch import learn
from barnabas.server.requests.fetch.access import may_fetch
from barnabas.server.requests.fetch.fetching import (
    RACK_AWARE_SELECTOR,
    Answer,
    AnyReplicaFetch,
    Fetch,
    FetchBelow10,
    FollowerFetch,
    PartitionData,
    RackFetch,
    partition_error,
)
from barnabas.server.requests.fetch.large import AT_ONCE, fetch_in_turns
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.fetch.targets import PART, apply_changes, forget, parts_of, targets_of
from barnabas.server.requests.old_formats import RESPONSE_BYTES_MAX, Budget, down_converted, fair_order
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

ANY_REPLICA = -2
"""The replica id of a tool that reads followers."""


class FetchBelow4(FetchBelow10):
    """By clients whose records must be converted: every partition with records gets a whole batch to convert, whose
    messages may then be more than fit. `answers`: what was planned last.
    """

    __slots__ = ("answers", "hard_limits")

    def __init__(self, svc: Services, ctx: Any, req: FetchRequest, targets: dict[TargetKey, FetchTarget]) -> None:
        super().__init__(svc, ctx, req, targets, None, False)
        self.hard_limits = ctx.api_version < 3
        self.answers: list[Answer] = []

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if not partition.log.state.config.message_downconversion_enable:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        first = target.max_bytes > 0 if self.hard_limits else first
        return super()._read(partition, target, min(left_bytes, RESPONSE_BYTES_MAX), first)

    def respond(self, answers: list[Answer]) -> FetchResponse:
        self.answers += answers
        return super().respond(answers)


class _Waiting:
    """Stands in for the context of an old request whose task waits for the response to convert it."""

    __slots__ = ("_ctx", "_done", "api_version", "response")

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._done = trio.Event()
        self.api_version = ctx.api_version
        self.response: FetchResponse | None = None

    @property
    def closed(self) -> bool:
        return self._ctx.closed

    def reply(self, response: FetchResponse) -> None:
        self.response = response
        self._done.set()

    def on_close(self, callback: Callable[[], None]) -> None:
        def closed() -> None:
            callback()
            self._done.set()

        self._ctx.on_close(closed)

    def let_go(self) -> str:
        return self._ctx.let_go()

    async def wait(self) -> FetchResponse | None:
        """The response; None if the client is gone."""
        await self._done.wait()
        return self.response


def handle(svc: Services, ctx: RequestContext, req: FetchRequest) -> object:
    version = ctx.api_version
    replica_id = req.replica_state.replica_id if version >= 15 else req.replica_id
    by_id = version >= 13
    is_full = version < 7 or req.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH)
    count = 0
    for topic in req.topics:
        count += len(topic.partitions)
    if count > AT_ONCE:
        return _handle_large(svc, ctx, req, is_full, by_id, replica_id)
    if is_full:
        targets = dict(targets_of(req.topics, by_id))
        return _fetch(svc, ctx, req, targets, _opened(svc, ctx, req, targets, by_id, replica_id), False, replica_id)
    try:
        session = svc.fetch_sessions.use(req.session_id, req.session_epoch, by_id, svc.now())
        session.advance()
        if count:
            apply_changes(session, req.topics, by_id)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return _go_on(svc, ctx, req, session, by_id, replica_id)


async def _handle_large(
    svc: Services, ctx: RequestContext, req: FetchRequest, is_full: bool, by_id: bool, replica_id: int
) -> object:
    """A request that names very many partitions: they are put together in turns."""
    if is_full:
        targets = await svc.turns.run(_targets_in_parts(req, by_id))
        return _fetch(svc, ctx, req, targets, _opened(svc, ctx, req, targets, by_id, replica_id), False, replica_id)
    try:
        session = svc.fetch_sessions.use(req.session_id, req.session_epoch, by_id, svc.now())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    session.advance()  # so that nobody else uses it meanwhile
    await svc.turns.run(_apply_in_parts(session, req, by_id))
    return _go_on(svc, ctx, req, session, by_id, replica_id)


def _targets_in_parts(req: FetchRequest, by_id: bool) -> Steps[dict[TargetKey, FetchTarget]]:
    targets: dict[TargetKey, FetchTarget] = {}
    for part in parts_of(req.topics):
        targets.update(targets_of(part, by_id))
        yield PART
    return targets


def _apply_in_parts(session: FetchSession, req: FetchRequest, by_id: bool) -> Steps[None]:
    for part in parts_of(req.topics):
        apply_changes(session, part, by_id)
        yield PART


def _opened(
    svc: Services,
    ctx: RequestContext,
    req: FetchRequest,
    targets: dict[TargetKey, FetchTarget],
    by_id: bool,
    replica_id: int,
) -> FetchSession | None:
    """The session that a full request opens, if it does; whatever one it had is over."""
    sessions = svc.fetch_sessions
    if req.session_id:
        sessions.close(req.session_id)
    if ctx.api_version < 7 or req.session_epoch != INITIAL_EPOCH:
        return None
    return sessions.open(targets, by_id, replica_id >= 0, svc.now(), ctx.connection)


def _go_on(
    svc: Services, ctx: RequestContext, req: FetchRequest, session: FetchSession, by_id: bool, replica_id: int
) -> object:
    """Fetch what the session remembers, as the request has changed it."""
    if req.forgotten_topics_data:
        forget(session, req, by_id)
    if len(session.targets) != session.noted_size:
        try:
            svc.fetch_sessions.resized(session)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
    if not session.targets:
        svc.fetch_sessions.close(session.session_id)
        return FetchResponse()
    return _fetch(svc, ctx, req, session.targets, session, True, replica_id)


def _fetch(
    svc: Services,
    ctx: RequestContext,
    req: FetchRequest,
    targets: dict[TargetKey, FetchTarget],
    session: FetchSession | None,
    incremental: bool,
    replica_id: int,
) -> object:
    version = ctx.api_version
    if replica_id == -1 and version >= 10 and not (req.rack_id and _selects_by_rack(svc)):
        fetch = Fetch(svc, ctx, req, targets, session, incremental)
    else:
        fetch = _unusual(svc, ctx, req, targets, session, incremental, replica_id)
    if len(targets) > AT_ONCE:
        return fetch_in_turns(fetch, req.max_wait_ms)
    return fetch.start(req.max_wait_ms)


def _selects_by_rack(svc: Services) -> bool:
    return svc.config.get_value("replica.selector.class") == RACK_AWARE_SELECTOR


def _unusual(
    svc: Services,
    ctx: RequestContext,
    req: FetchRequest,
    targets: dict[TargetKey, FetchTarget],
    session: FetchSession | None,
    incremental: bool,
    replica_id: int,
) -> Fetch:
    if replica_id >= 0:
        followers = FollowerFetch(svc, ctx, req, targets, session, incremental)
        followers.replica_id = replica_id
        followers.broker_epoch = req.replica_state.replica_epoch if ctx.api_version >= 15 else -1
        svc.partitions.leader_throttle.look_at(svc.config)
        followers.tell_high_watermark = session is not None and _selects_by_rack(svc)
        return followers
    if replica_id == ANY_REPLICA:
        return AnyReplicaFetch(svc, ctx, req, targets, session, incremental)
    if ctx.api_version < 10:
        return FetchBelow10(svc, ctx, req, targets, session, incremental)
    if not req.rack_id:
        return Fetch(svc, ctx, req, targets, session, incremental)
    near = RackFetch(svc, ctx, req, targets, session, incremental)
    near.rack = req.rack_id
    return near


async def handle_old(svc: Services, ctx: RequestContext, req: FetchRequest) -> FetchResponse:
    """Versions 0-3: plan and wait as the others do, then convert."""
    if req.replica_id >= 0:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "followers must speak version 4 at least")
    waiting = _Waiting(ctx)
    targets = await svc.turns.run(_targets_in_parts(req, False))
    fetch = FetchBelow4(svc, waiting, req, targets)
    if len(targets) > AT_ONCE:
        started: object = await fetch_in_turns(fetch, req.max_wait_ms)
    else:
        started = fetch.start(req.max_wait_ms)
    response = await waiting.wait() if started is PENDING else started
    if not isinstance(response, FetchResponse):
        return FetchResponse()  # for nobody
    answers: Iterable[Answer] = fetch.answers
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
            failed = partition_error(target, error.code)
            data.error_code, data.high_watermark = failed.error_code, failed.high_watermark
        first = first and not data.records
    return response


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
                    PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
                    for asked in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(ApiKey.FETCH, (0, 18), handle, access=may_fetch, old=Old(3, handle_old), on_error=_on_error, learn=learn)
