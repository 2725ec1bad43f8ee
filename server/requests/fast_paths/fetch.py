"""Fetch requests like one before on their connection but for epochs, offsets, and which partitions of a session.

If enough records are there, and no other partition is in the session, the answer is the example's with other numbers.
Else the request is not decoded, but handled as by the slow path (`barnabas.server.requests.fetch`), which may wait.

Only flexible versions (12 and later) by consumers, at most `PARTITIONS_MAX` partitions, in an incremental session that
has them, or without any session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from struct import Struct

from barnabas.kproto import KafkaError, Part, uvarint
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.network.connection import Connection
from barnabas.server.requests.api import PENDING
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import (
    INT_BYTES,
    LONG_BYTES,
    MARKS,
    Form,
    Repeated,
    around_marks,
    fast_path_of,
)
from barnabas.server.requests.fast_paths.fetch_frames import (
    BY_ID_FROM,
    FLEXIBLE_FROM,
    NUMBERS_BEFORE,
    NUMBERS_EACH,
    PARTITIONS_MAX,
    REPLICA_TAGGED_FROM,
    form_of,
)
from barnabas.server.requests.fetch.consumers import READ_COMMITTED
from barnabas.server.requests.fetch.fetching import Fetch
from barnabas.server.requests.fetch.large import AT_ONCE
from barnabas.server.requests.fetch.readers import reader_of_consumers, selects_by_rack
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.fetch.targets import ask, find_partition, new_target
from barnabas.server.requests.services import Services

_MIDDLE_BYTES = 5
"""After high watermark, last stable offset and log start offset: the list of aborted transactions, null or empty, and
the preferred replica. Then the records' length.
"""


class _Example:
    """A request, decoded. An `Example`.

    `names`: of the topics (or their ids) of the partitions that it asks for, in the frame's order; `requested`: these
    partitions, which get the numbers of the present request; `indexes`, `targets`, `asked`: of the last request, if
    there is no session.
    """

    __slots__ = (
        "answer",
        "asked",
        "client_id",
        "form",
        "indexes",
        "names",
        "reader",
        "request",
        "requested",
        "route",
        "svc",
        "targets",
        "version",
    )

    def __init__(self, svc: Services, ctx: RequestContext, request: FetchRequest, form: Form) -> None:
        self.svc = svc
        self.form = form
        self.route = ctx.route
        self.version = ctx.api_version
        self.client_id = ctx.client_id
        self.request = request
        by_id = self.version >= BY_ID_FROM
        self.requested = [each for topic in request.topics for each in topic.partitions]
        self.names = [topic.topic_id if by_id else topic.topic for topic in request.topics for _ in topic.partitions]
        self.indexes: tuple[int, ...] = ()
        self.targets: dict[TargetKey, FetchTarget] = {}
        self.asked: list[FetchTarget] = []
        self.reader = reader_of_consumers(self.version, request.isolation_level == READ_COMMITTED)
        self.answer = _Answer(ctx, request) if len(self.requested) == 1 else None

    def take(self, connection: Connection, numbers: tuple[int, ...]) -> RequestContext | None:
        """Part of `Example`."""
        svc = self.svc
        request = self.request
        session = None
        if request.rack_id and selects_by_rack(svc):
            return None
        indexes = numbers[NUMBERS_BEFORE::NUMBERS_EACH]
        try:
            if request.session_id:
                session = svc.fetch_sessions.use(request.session_id, numbers[1], self.version >= BY_ID_FROM, svc.now())
                targets = session.targets
                keys = zip(self.names, indexes, strict=True)
                asked = [target for key in keys if (target := targets.get(key)) is not None]
                if (len(targets) > 1 or not asked) and not self._may_use(connection, session):
                    return None
            elif numbers[1] == FINAL_EPOCH:
                if indexes != self.indexes:
                    self._turn_to(indexes)
                targets, asked = self.targets, self.asked
            else:
                return None
            if len(asked) != len(indexes):
                return None
            for target in asked:
                if target.partition is None or not target.partition.is_leader:
                    target.partition = find_partition(svc, target)
        except KafkaError:
            return None
        at = NUMBERS_BEFORE + 1
        for target, requested in zip(asked, self.requested, strict=True):
            requested.current_leader_epoch, requested.fetch_offset, requested.last_fetched_epoch = numbers[at : at + 3]
            ask(target, requested)
            at += NUMBERS_EACH
        if session is not None:
            session.advance()
        ctx = RequestContext(connection, self.route, self.version, numbers[0], self.client_id)
        shortcut = None
        if self.answer is not None and len(targets) == 1:
            shortcut = partial(self._answer, ctx, asked[0], targets)
            if shortcut():
                return ctx
        ctx.request = request
        fetch = Fetch(svc, ctx, request, (targets, session, session is not None), self.reader)
        fetch.shortcut = shortcut
        response = fetch.start(request.max_wait_ms)
        if response is not PENDING:
            ctx.reply(response)
        return ctx

    def _turn_to(self, indexes: tuple[int, ...]) -> None:
        """Another order of the partitions, or others: clients begin with another one each time."""
        keys = zip(self.names, indexes, strict=True)
        self.targets = {key: self.targets.get(key) or new_target(key) for key in keys}
        self.indexes, self.asked = indexes, list(self.targets.values())

    def _answer(self, ctx: RequestContext, target: FetchTarget, targets: Mapping[TargetKey, FetchTarget]) -> bool:
        """Answer a request of one partition, when it is taken or later, if it is simple: without quotas, and without
        other partitions that somebody has put into its session meanwhile.
        """
        answer, svc = self.answer, self.svc
        if answer is None or len(targets) != 1 or svc.quotas.limits_requests:
            return False
        parts = answer.parts(svc, self.request, ctx.correlation_id, target)
        if parts is None:
            return False
        ctx.reply_encoded(*parts)
        return True

    def _may_use(self, connection: Connection, session: FetchSession) -> bool:
        """Whether it can be handled at once, and the caller may read what is in it but not in the request, as
        `fetch/access.py` found.
        """
        return len(session.targets) <= AT_ONCE and (
            self.svc.authorizer is None or (session.allowed is not None and session.allowed is connection.permissions)
        )


class _Answer:
    """The answer to a request of one partition, encoded but for the records and what changes with them."""

    __slots__ = ("_head", "_is_committed", "_middle", "_pack", "_tail")

    def __init__(self, ctx: RequestContext, request: FetchRequest) -> None:
        topic = request.topics[0]
        self._is_committed = request.isolation_level == READ_COMMITTED
        marked = FetchResponse.PartitionData(
            partition_index=topic.partitions[0].partition,
            aborted_transactions=[] if self._is_committed else None,
            records=b"",
        )
        marked.high_watermark, marked.last_stable_offset, marked.log_start_offset = MARKS
        response = FetchResponse(
            session_id=request.session_id,
            responses=[
                FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[marked])
            ],
        )
        head, rest = around_marks(ctx.route, response)
        self._head = head[:-_INDEX_AND_ERROR_BYTES]
        self._middle, self._tail = rest[:_MIDDLE_BYTES], rest[_MIDDLE_BYTES + 1 :]
        self._pack = Struct(f">ii{len(self._head)}si2xqqq{_MIDDLE_BYTES}s").pack

    def parts(
        self, svc: Services, request: FetchRequest, correlation_id: int, target: FetchTarget
    ) -> tuple[Part, ...] | None:
        """The answer if there are enough records for one; None: there is something else to say, or to wait for."""
        partition = target.partition
        assert partition is not None
        epoch = partition.leader_epoch
        if not (
            partition.is_leader
            and (target.current_leader_epoch < 0 or target.current_leader_epoch == epoch)
            and (target.last_fetched_epoch < 0 or target.last_fetched_epoch == epoch)
        ):
            return None
        offset = target.fetch_offset
        high_watermark = partition.high_watermark
        last_stable_offset = partition.last_stable_offset
        upper_offset = last_stable_offset if self._is_committed else high_watermark
        if offset >= upper_offset:
            return None
        max_bytes = min(request.max_bytes, svc.config.get_int("fetch.max.bytes"))
        try:
            records = partition.read(
                offset, min(target.max_bytes, max_bytes), upper_offset=upper_offset, min_one_batch=True
            )
        except KafkaError:
            return None
        if (
            records is None
            or len(records) < min(request.min_bytes, max_bytes)
            or (self._is_committed and partition.log.aborted_in(records, offset, last_stable_offset))
        ):
            return None
        log_start_offset = partition.log_start_offset
        if request.session_id:
            target.sent_high_watermark = high_watermark
            target.sent_log_start_offset = log_start_offset
        head, tail = self._head, self._tail
        length = uvarint(len(records) + 1)
        size = _FIXED_BYTES + len(head) + len(length) + len(records) + len(tail)
        answer = self._pack(
            size,
            correlation_id,
            head,
            target.index,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            self._middle,
        )
        partition.traffic.bytes_out += len(records)
        return answer + length, records, tail


_INDEX_AND_ERROR_BYTES = 6
_FIXED_BYTES = INT_BYTES + _INDEX_AND_ERROR_BYTES + 3 * LONG_BYTES + _MIDDLE_BYTES


class FetchFastPath(Repeated[_Example]):
    """The last requests of a connection that may be examples: several, as they name more or fewer partitions."""

    __slots__ = ()

    EXAMPLES_MAX = 4


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: FetchRequest) -> None:
    """Remember this request as an example. Part of `barnabas.server.requests.api.Api`."""
    version = ctx.api_version
    named = {(topic.topic, topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions}
    count = sum(len(topic.partitions) for topic in request.topics)
    if (
        version < FLEXIBLE_FROM
        or len(frame) > FetchFastPath.FRAME_BYTES_MAX
        or request.forgotten_topics_data
        or request.session_epoch == INITIAL_EPOCH
        or (request.session_epoch == FINAL_EPOCH) != (request.session_id == 0)
        or (request.replica_state.replica_id if version >= REPLICA_TAGGED_FROM else request.replica_id) != -1
        or count > PARTITIONS_MAX
        or not all(topic.partitions for topic in request.topics)
        or not (request.session_id or 0 < len(named) == count)
    ):
        return
    path = fast_path_of(ctx.connection, FetchFastPath)
    if path is not None and not path.may_learn(frame):
        return
    start = bytes(frame)
    form = form_of(version, start, request)
    if form is None:
        return
    if path is None:
        path = FetchFastPath(svc)
        ctx.connection.fast_paths.append(path)
    path.remember(_Example(svc, ctx, request, form))
