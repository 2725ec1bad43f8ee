"""Produce requests that start like an earlier one of their connection: everything before the batch is equal.

A busy producer has several requests in flight, which arrive together. Consecutive plain ones are a *run* (`take_run`):
looked up once, appended together (`Appender.append_run`), answered with one buffer.

Every batch is checked and appended as usual. Anything but plain success once it is staged (a commit or a flush to wait
for, a time stamped by the broker, a lost write) is completed by `barnabas.server.requests.produce.pending`.

Only flexible versions (9 and later), without transactional id, acks other than 0, one partition of a topic that is not
internal; at most `LEARNT_MAX` different beginnings of one length, of `LEARNT_BYTES_MAX` bytes at most, for each
connection, so that a client that never repeats itself costs little.
"""

from __future__ import annotations

from barnabas.kproto import DecodeError, KafkaError, read_uvarint
from barnabas.kproto.allowance import TooMuchWork
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.kproto.records import BATCH_OVERHEAD, TRANSACTIONAL
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE
from barnabas.logdir import AppendInfo, AppendOrigin
from barnabas.server.network.connection import Connection
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import (
    BODY_AT,
    CORRELATION_ID_AT,
    MARKS,
    AnswerForm,
    fast_path_of,
    int_at,
)
from barnabas.server.requests.produce.pending import finish_staged
from barnabas.server.requests.services import Services

FLEXIBLE_FROM = 9
LEARNT_MAX = 16
LEARNT_BYTES_MAX = 1024
"""Room for a topic's name and 700 bytes of client id. A header's tagged fields may have any size."""
RUN_MAX = 64
"""The longest run."""
PLACES_MAX = 64
"""Frame sizes that are remembered for each connection."""

_Place = tuple[int, int, bytes]
_TAIL = b"\0\0\0"
"""No tagged fields: of the partition, of the topic, of the request."""


class _Known:
    """A known beginning decoded, and its answer."""

    __slots__ = ("acks", "answer", "client_id", "head", "index", "key", "request", "route", "size", "tail", "version")

    def __init__(self, ctx: RequestContext, key: bytes, request: ProduceRequest) -> None:
        self.route = ctx.route
        self.version = ctx.api_version
        self.client_id = ctx.client_id
        self.key = key
        self.acks = request.acks
        topic = request.topic_data[0]
        self.index = index = topic.partition_data[0].index
        # Without the records, which lie in the receive buffer.
        self.request = ProduceRequest(
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[ProduceRequest.PartitionProduceData(index=index)],
                )
            ],
        )
        marked = ProduceResponse.PartitionProduceResponse(index=index)
        marked.base_offset, marked.log_append_time_ms, marked.log_start_offset = MARKS
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[marked]
                )
            ]
        )
        form = AnswerForm(ctx.route, response)
        self.head, self.tail = form.constants
        self.answer, self.size = form.pack, form.size


class ProduceFastPath:
    """The beginnings known of one connection, all of one length: `at` bytes. A `FastPath`."""

    __slots__ = ("at", "known", "places", "svc")

    def __init__(self, svc: Services, at: int) -> None:
        self.svc = svc
        self.at = at
        self.known: dict[bytes, _Known] = {}
        self.places: dict[int, _Place] = {}

    def remember(self, ctx: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Remember how this request starts, which `_beginning` has accepted."""
        if len(self.known) < LEARNT_MAX:
            start = bytes(frame[: self.at])
            self.known[start[BODY_AT:]] = _Known(ctx, start[:CORRELATION_ID_AT], request)

    def take(self, connection: Connection, frame: memoryview) -> RequestContext | None:
        """Part of `FastPath`: a request with a known beginning."""
        start = bytes(frame[: self.at])
        known = self.known.get(start[BODY_AT:])
        if known is None or not start.startswith(known.key) or self.svc.quotas.limits_requests:
            return None
        place = self.places.get(len(frame)) or self._place(frame)
        if place is None:
            return None
        position, end, length = place
        # A transactional batch without a transactional id: the slow path refuses it.
        if (
            frame[self.at : position] != length
            or frame[end:] != _TAIL
            or frame[position + ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL
        ):
            return None
        svc = self.svc
        try:
            partition = self._partition(known)
            if partition is None:
                return None
            info = partition.append(
                frame[position:end],
                origin=AppendOrigin.CLIENT,
                now_ms=svc.wall_ms(),
                required_acks=known.acks,
                allowance=svc.partitions.allowance,
            )
        except (KafkaError, TooMuchWork):
            return None
        (correlation_id,) = int_at(start, CORRELATION_ID_AT)
        ctx = RequestContext(connection, known.route, known.version, correlation_id, known.client_id)
        svc.partitions.after_write(_Staged(known, svc, ctx, partition, info).written)
        return ctx

    def take_run(self, connection: Connection, view: memoryview, position: int) -> tuple[RequestContext, int] | None:
        """Part of `FastPath`: plain requests with the same beginning."""
        at, end = self.at, len(view)
        behind_at = 4 + at
        known: _Known | None = None
        body = b""
        batches: list[memoryview] = []
        heads: list[bytes] = []
        ends: list[int] = []
        while end - position > behind_at and len(batches) < RUN_MAX:
            place = self.places.get(int_at(view, position)[0])
            if place is None:
                break
            first, last, length = place
            start = bytes(view[position + 4 : position + behind_at])
            frame_end = position + 4 + last + len(_TAIL)
            if known is None:
                body = start[BODY_AT:]
                known = self.known.get(body)
                if known is None:
                    return None
            elif start[BODY_AT:] != body:
                break
            first += position + 4
            if (
                frame_end > end
                or not start.startswith(known.key)
                or view[position + behind_at : first] != length
                or view[frame_end - len(_TAIL) : frame_end] != _TAIL
            ):
                break
            batches.append(view[first : frame_end - len(_TAIL)])
            heads.append(start)
            ends.append(frame_end)
            position = frame_end
        if len(batches) < 2 or known is None:
            return None
        try:
            partition = self._partition(known)
        except KafkaError:
            return None
        if partition is None:
            return None
        base_offset = partition.log.state.next_offset
        lasts = partition.append_run(batches, now_ms=self.svc.wall_ms(), required_acks=known.acks)
        if not lasts:
            return None
        run = _Run(self.svc, connection, known, partition, heads, base_offset, lasts)
        self.svc.partitions.after_write(run.written)
        return run, ends[len(lasts) - 1]

    def _partition(self, known: _Known) -> Partition | None:
        """None for one of an internal topic. Raises KafkaError."""
        topic = known.request.topic_data[0]
        if known.version >= 13:
            partition = self.svc.partitions.get_by_id(topic.topic_id, known.index)
        else:
            partition = self.svc.partitions.get(topic.name, known.index)
        return None if partition.topic.startswith("__") else partition

    def _place(self, frame: memoryview) -> _Place | None:
        """Where the one batch starts and ends in frames of this size, and the bytes of its length; None: it does not
        fit.
        """
        try:
            length, position = read_uvarint(frame, self.at)
        except (IndexError, DecodeError):
            return None
        end = position + length - 1
        if length <= BATCH_OVERHEAD or end + len(_TAIL) != len(frame):
            return None
        if len(self.places) >= PLACES_MAX:
            self.places.clear()
        place = self.places[len(frame)] = (position, end, bytes(frame[self.at : position]))
        return place


class _Staged:
    """A request between its append and its answer."""

    __slots__ = ("ctx", "info", "known", "partition", "svc")

    def __init__(
        self, known: _Known, svc: Services, ctx: RequestContext, partition: Partition, info: AppendInfo
    ) -> None:
        self.known = known
        self.svc = svc
        self.ctx = ctx
        self.partition = partition
        self.info = info

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self.ctx.release_waiters()

    def written(self) -> None:
        """The round's write is done."""
        partition = self.partition
        base_offset, last_offset, append_time_ms, log_start_offset, _ = self.info
        if (
            last_offset >= partition.log.state.log_end_offset
            or partition.held_at is not None
            or (partition.high_watermark <= last_offset and self.known.acks == -1)
        ):
            finish_staged(self.svc, self.ctx, self.known.request, partition, self.info)
            return
        ctx = self.ctx
        known = self.known
        ctx.reply_encoded(
            known.answer(
                known.size, ctx.correlation_id, known.head, base_offset, append_time_ms, log_start_offset, known.tail
            )
        )


class _Run(RequestContext):
    """Requests of a run, between their append and their answers, which leave together: one slot for all of them."""

    __slots__ = ("bases", "heads", "known", "lasts", "log_start_offset", "partition", "svc")

    def __init__(
        self,
        svc: Services,
        connection: Connection,
        known: _Known,
        partition: Partition,
        heads: list[bytes],
        base_offset: int,
        lasts: list[int],
    ) -> None:
        super().__init__(connection, known.route, known.version, 0, known.client_id)
        self.svc = svc
        self.known = known
        self.partition = partition
        self.heads = heads
        self.lasts = lasts
        self.bases = [base_offset, *[last + 1 for last in lasts[:-1]]]
        self.log_start_offset = partition.log.state.log_start_offset

    def release_waiters(self) -> str:
        # It may have been split already, so that its requests have slots of their own.
        self.connection.abort()
        return str(self)

    def written(self) -> None:
        """The round's write is done."""
        partition = self.partition
        known = self.known
        bases = self.bases
        ids = [int_at(head, CORRELATION_ID_AT)[0] for head in self.heads[: len(bases)]]
        if (
            self.lasts[-1] < partition.log.state.log_end_offset
            and partition.held_at is None
            and (partition.high_watermark > self.lasts[-1] or known.acks != -1)
        ):
            answer, size, head, tail = known.answer, known.size, known.head, known.tail
            start = self.log_start_offset
            self.reply_encoded(
                b"".join([answer(size, one, head, base, -1, start, tail) for one, base in zip(ids, bases, strict=True)])
            )
            return
        contexts = [RequestContext(self.connection, known.route, known.version, one, known.client_id) for one in ids]
        self.connection.split(self, contexts)
        for context, base, last in zip(contexts, bases, self.lasts, strict=True):
            info = AppendInfo(base, last, -1, self.log_start_offset)
            finish_staged(self.svc, context, known.request, partition, info)


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
    """Remember the beginning of this request. Part of `barnabas.server.requests.api.Api`."""
    at = _beginning(ctx.api_version, frame, request)
    if at and ctx.pipelined:  # else it is held
        path = fast_path_of(ctx.connection, ProduceFastPath)
        if path is None:
            path = ProduceFastPath(svc, at)
            ctx.connection.fast_paths.append(path)
        if path.at == at:
            path.remember(ctx, frame, request)


def _beginning(version: int, frame: memoryview, request: ProduceRequest) -> int:
    """How many bytes precede the records' length, if such a request can be an example; else 0. The message must end
    with the frame.
    """
    if (
        version < FLEXIBLE_FROM
        or request.transactional_id is not None
        or request.acks not in (1, -1)
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
    ):
        return 0
    records = request.topic_data[0].partition_data[0].records
    if not isinstance(records, memoryview) or frame[len(frame) - len(_TAIL) :] != _TAIL:
        return 0
    start = len(frame) - len(_TAIL) - len(records)
    # A length encoded in more bytes than necessary does not count.
    at = start - max(1, ((len(records) + 1).bit_length() + 6) // 7)
    try:
        is_there = BODY_AT < at <= LEARNT_BYTES_MAX and read_uvarint(frame, at) == (len(records) + 1, start)
    except (IndexError, DecodeError):
        return 0
    return at if is_there else 0
