"""The short way for a Fetch request like the one before it on its connection.

A consumer that reads one partition asks the same thing over and over: only the correlation id, the epoch of its session
and the offset differ. A request whose other bytes are those of one that was decoded says the same, so it is not decoded
again, and its answer is not encoded: a few numbers are put between the bytes of an answer that was encoded once. That
spares a third of what Python does for a fetch of a megabyte.

Only if records are there at once, as many as the request wants; whatever is not that (an error, a wait, an aborted
transaction to be told, another partition in the session) goes the long way, `barnabas.server.apis.records.fetch`, and
nothing has happened.

Only flexible versions (12 and later) by consumers without a rack, one partition, in an incremental session or without
any; one request, of `LEARNT_BYTES_MAX` bytes at most, is remembered for each connection.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.kproto import KafkaError, uvarint
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fetch.fetching import READ_COMMITTED
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.server.requests.fetch.targets import ask, find_partition, targets_of
from barnabas.server.requests.services import Services

if TYPE_CHECKING:
    from barnabas.server.network.connection import Connection

FLEXIBLE_FROM = 12
BY_ID_FROM = 13
REPLICA_TAGGED_FROM = 15
"""Before, the replica id stands in front of all else."""

LEARNT_BYTES_MAX = 2048
"""A header's tagged fields may have any size."""

_CORRELATION_ID_AT = 4
_BODY_AT = 8
_INT = Struct(">i")
_LONG = Struct(">q")
_NUMBERS = Struct(">qqq")
_MARK = _NUMBERS.pack(0x0123456789ABCDEF, 0x1123456789ABCDEF, 0x2123456789ABCDEF)
"""Stands for high watermark, last stable offset and log start offset, which follow each other, in the answer that the
others are made from."""
_MIDDLE_BYTES = 5
"""After them: the list of aborted transactions, null or empty, and the preferred replica. Then the records' length."""


class RepeatedFetch:
    """One request of a connection, and what is known of its answer. `start`: the bytes of its frame; `epoch_at`,
    `offset_at`: where in them the session's epoch and the offset are.
    """

    __slots__ = (
        "_after_offset",
        "_answer",
        "_before_epoch",
        "_before_offset",
        "_client_id",
        "_epoch_at",
        "_head",
        "_key",
        "_middle",
        "_offset_at",
        "_request",
        "_route",
        "_size",
        "_svc",
        "_tail",
        "_target",
        "_version",
    )

    def __init__(
        self, svc: Services, ctx: RequestContext, start: bytes, request: FetchRequest, epoch_at: int, offset_at: int
    ) -> None:
        self._svc = svc
        self._route = ctx.route
        self._version = ctx.api_version
        self._client_id = ctx.client_id
        self._request = request
        ((_, self._target),) = targets_of(request.topics, self._version >= BY_ID_FROM)
        self._size = len(start)
        self._epoch_at, self._offset_at = epoch_at, offset_at
        self._key = start[:_CORRELATION_ID_AT]
        self._before_epoch = start[_BODY_AT:epoch_at]
        self._before_offset = start[epoch_at + _INT.size : offset_at]
        self._after_offset = start[offset_at + _LONG.size :]
        high_watermark, last_stable_offset, log_start_offset = _NUMBERS.unpack(_MARK)
        topic = request.topics[0]
        marked = FetchResponse.PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
            records=b"",
        )
        response = FetchResponse(
            session_id=request.session_id,
            responses=[
                FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[marked])
            ],
        )
        head, rest = b"".join(ctx.route.encode_frame(0, response)).split(_MARK)  # type: ignore[arg-type]
        self._head = head[_BODY_AT:]
        self._middle, self._tail = rest[:_MIDDLE_BYTES], rest[_MIDDLE_BYTES + 1 :]
        self._answer = Struct(f">ii{len(self._head)}sqqq{_MIDDLE_BYTES}s").pack

    def is_like(self, start: bytes) -> bool:
        """Whether the frame `start` says the same, but for what may differ."""
        return (
            len(start) == self._size
            and start.startswith(self._key)
            and start[_BODY_AT : self._epoch_at] == self._before_epoch
            and start[self._epoch_at + _INT.size : self._offset_at] == self._before_offset
            and start[self._offset_at + _LONG.size :] == self._after_offset
        )

    def take(self, connection: Connection, frame: memoryview) -> RequestContext | None:
        """Answer a request if it is like the one before; None: it needs the long way, and nothing has happened."""
        if len(frame) != self._size:
            return None
        start = bytes(frame)
        if not self.is_like(start):
            return None
        epoch_at, offset_at = self._epoch_at, self._offset_at
        svc = self._svc
        request = self._request
        asked = request.topics[0].partitions[0]
        (epoch,) = _INT.unpack_from(start, epoch_at)
        (offset,) = _LONG.unpack_from(start, offset_at)
        target = self._target
        session = None
        try:
            if request.session_id:
                session = svc.fetch_sessions.use(request.session_id, epoch, self._version >= BY_ID_FROM, svc.now())
                if len(session.targets) != 1 or target.key not in session.targets:
                    return None
                target = session.targets[target.key]
            elif epoch != FINAL_EPOCH:
                return None
            partition = target.partition
            if partition is None or not partition.is_leader:
                partition = target.partition = find_partition(svc, target)
            partition.check_leader_epoch(asked.current_leader_epoch)
            high_watermark = partition.high_watermark
            last_stable_offset = partition.last_stable_offset
            upper_offset = last_stable_offset if request.isolation_level == READ_COMMITTED else high_watermark
            if offset >= upper_offset:
                return None
            max_bytes = min(request.max_bytes, svc.config.get_int("fetch.max.bytes"))
            records = partition.read(
                offset, min(asked.partition_max_bytes, max_bytes), upper_offset=upper_offset, min_one_batch=True
            )
            if (
                records is None
                or len(records) < min(request.min_bytes, max_bytes)
                or (
                    request.isolation_level == READ_COMMITTED
                    and partition.log.aborted_in(records, offset, last_stable_offset)
                )
            ):
                return None
        except KafkaError:
            return None
        log_start_offset = partition.log_start_offset
        if session is not None:
            session.advance()
            asked.fetch_offset = offset
            ask(target, asked)
            target.sent_high_watermark = high_watermark
            target.sent_log_start_offset = log_start_offset
        (correlation_id,) = _INT.unpack_from(start, _CORRELATION_ID_AT)
        ctx = RequestContext(connection, self._route, self._version, correlation_id, self._client_id)
        head, tail = self._head, self._tail
        length = uvarint(len(records) + 1)
        size = 4 + len(head) + _NUMBERS.size + _MIDDLE_BYTES + len(length) + len(records) + len(tail)
        answer = self._answer(
            size, correlation_id, head, high_watermark, last_stable_offset, log_start_offset, self._middle
        )
        ctx.reply_encoded(answer + length, records, tail)
        return ctx


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: FetchRequest) -> None:
    """The next request of the connection may be like this one. Part of `barnabas.server.requests.api.Api`."""
    version = ctx.api_version
    if (
        version < FLEXIBLE_FROM
        or len(frame) > LEARNT_BYTES_MAX
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or request.forgotten_topics_data
        or request.rack_id
        or request.session_epoch == INITIAL_EPOCH
        or (request.session_epoch == FINAL_EPOCH) != (request.session_id == 0)
        or (request.replica_state.replica_id if version >= REPLICA_TAGGED_FROM else request.replica_id) != -1
        or request.topics[0].partitions[0].last_fetched_epoch >= 0
    ):
        return
    name_bytes = 16
    if version < BY_ID_FROM:
        name = request.topics[0].topic.encode()
        name_bytes = len(uvarint(len(name) + 1)) + len(name)
    # The session's epoch stands in front of the topics, the offset behind the partition's number and leader epoch;
    # arrays of one element have a length of one byte.
    start = bytes(frame)
    known = ctx.connection.repeated_fetch
    if isinstance(known, RepeatedFetch) and known.is_like(start):
        return
    epoch_at = parse_request_header(start).body_offset + (17 if version >= REPLICA_TAGGED_FROM else 21)
    offset_at = epoch_at + 4 + 1 + name_bytes + 1 + 8
    if (
        _INT.unpack_from(start, epoch_at)[0] == request.session_epoch
        and _LONG.unpack_from(start, offset_at)[0] == request.topics[0].partitions[0].fetch_offset
    ):
        ctx.connection.repeated_fetch = RepeatedFetch(svc, ctx, start, request, epoch_at, offset_at)
