"""The short way for a Produce request like the ones before it on its connection.

A producer asks the same thing over and over: same version, client id, acks and timeout, one partition; only the
correlation id and the batch differ. Whatever stands before the batch was decoded once; a request that begins with the
same bytes says the same, so it is neither decoded again nor is its answer encoded: three numbers are put into a copy
of an answer. What was spared is a fifth of the broker's work for a request of 16 KB.

A busy producer has several requests on their way, which arrive together. Those that follow each other and are plain
are a *run* (`take_run`): looked up once, appended in one go (`Appender.append_run`), answered with one
piece. That halves what is left of the work.

Every batch is checked and appended as ever. Whatever is not plain success (an error, a commit or a flush to wait
for, a time stamped by the broker) goes the long way, `barnabas.server.apis.records.produce`, from the start if nothing
was staged.

Only flexible versions (9 and later), without transactional id, acks other than 0, one partition of a topic that is not
internal; at most `LEARNT_MAX` different beginnings of one length, of `LEARNT_BYTES_MAX` bytes at most, for each
connection, so that who never repeats itself costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.kproto import DecodeError, KafkaError, read_uvarint
from barnabas.kproto.allowance import TooMuchWork
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.kproto.records import BATCH_OVERHEAD
from barnabas.logdir import AppendInfo, AppendOrigin
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.produce.transactional import ATTRIBUTES_LOW_BYTE_AT, TRANSACTIONAL
from barnabas.server.requests.services import Services

if TYPE_CHECKING:
    from barnabas.server.network.connection import Connection

FLEXIBLE_FROM = 9
LEARNT_MAX = 16
LEARNT_BYTES_MAX = 1024
"""Room for a topic's name and 700 bytes of client id. A header's tagged fields may have any size."""
RUN_MAX = 64
"""So many requests are taken up in one go, at most."""
PLACES_MAX = 64
"""Frames of so many sizes are remembered, for each connection."""

_CORRELATION_ID = slice(4, 8)
_BODY_AT = 8
_Place = tuple[int, int, bytes]
_TAIL = b"\0\0\0"
"""No tagged fields: of the partition, of the topic, of the request."""
_INT = Struct(">i")
_NUMBERS = Struct(">qqq")
_MARK = _NUMBERS.pack(0x0123456789ABCDEF, 0x1123456789ABCDEF, 0x2123456789ABCDEF)
"""Stands for base offset, append time and log start offset, which follow each other, in the answer that the others are
made from."""

LongWay = Callable[[Services, RequestContext, ProduceRequest, Partition, AppendInfo], None]
"""Finishes a request whose one batch was staged and written."""


class _Known:
    """What a known beginning says, and the answer to it."""

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
        base_offset, append_time_ms, log_start_offset = _NUMBERS.unpack(_MARK)
        marked = ProduceResponse.PartitionProduceResponse(
            index=index,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[marked]
                )
            ]
        )
        frame = b"".join(ctx.route.encode_frame(0, response))  # type: ignore[arg-type]
        head, self.tail = frame.split(_MARK)
        self.size, self.head = head[: _CORRELATION_ID.start], head[_BODY_AT:]
        self.answer = Struct(f">4si{len(self.head)}sqqq{len(self.tail)}s").pack


class RepeatedProduce:
    """The beginnings known of one connection, all of one length: `at` bytes."""

    __slots__ = ("at", "known", "long_way", "places", "svc")

    def __init__(self, svc: Services, at: int, long_way: LongWay) -> None:
        self.svc = svc
        self.at = at
        self.known: dict[bytes, _Known] = {}
        self.places: dict[int, _Place] = {}
        self.long_way = long_way

    def learn(self, ctx: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Remember how this request begins; `beginning` has said that it may be."""
        if len(self.known) < LEARNT_MAX:
            start = bytes(frame[: self.at])
            self.known[start[_BODY_AT:]] = _Known(ctx, start[: _CORRELATION_ID.start], request)

    def take(self, connection: Connection, frame: memoryview) -> RequestContext | None:
        """Take up a request if it begins like one before; None: it needs the long way, and nothing has happened."""
        start = bytes(frame[: self.at])
        known = self.known.get(start[_BODY_AT:])
        if known is None or not start.startswith(known.key):
            return None
        place = self.places.get(len(frame)) or self._place(frame)
        if place is None:
            return None
        position, end, length = place
        # Who sends transactional batches must have said so at the beginning; the long way refuses it.
        if (
            frame[self.at : position] != length
            or frame[end:] != _TAIL
            or frame[position + ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL
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
        (correlation_id,) = _INT.unpack_from(start, _CORRELATION_ID.start)
        ctx = RequestContext(connection, known.route, known.version, correlation_id, known.client_id)
        svc.partitions.after_write(_Staged(self, known, svc, ctx, partition, info).written)
        return ctx

    def take_run(self, connection: Connection, view: memoryview, position: int) -> tuple[RequestContext, int] | None:
        """Take up the requests that lie behind each other in `view` from `position` on, as long as they begin alike
        and are plain; None: there is no such run, and nothing has happened. Returns the slot of their answers, and
        where the next request begins.
        """
        at, end = self.at, len(view)
        behind_at = 4 + at
        known: _Known | None = None
        body = b""
        batches: list[memoryview] = []
        heads: list[bytes] = []
        ends: list[int] = []
        while end - position > behind_at and len(batches) < RUN_MAX:
            place = self.places.get(_INT.unpack_from(view, position)[0])
            if place is None:
                break
            first, last, length = place
            start = bytes(view[position + 4 : position + behind_at])
            frame_end = position + 4 + last + len(_TAIL)
            if known is None:
                body = start[_BODY_AT:]
                known = self.known.get(body)
                if known is None:
                    return None
            elif start[_BODY_AT:] != body:
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
        run = _Run(self, connection, known, partition, heads, base_offset, lasts)
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
        """Where one batch begins and ends in frames of this size, and the bytes of its length; None: it cannot."""
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

    __slots__ = ("ctx", "info", "known", "partition", "repeated", "svc")

    def __init__(
        self,
        repeated: RepeatedProduce,
        known: _Known,
        svc: Services,
        ctx: RequestContext,
        partition: Partition,
        info: AppendInfo,
    ) -> None:
        self.repeated = repeated
        self.known = known
        self.svc = svc
        self.ctx = ctx
        self.partition = partition
        self.info = info

    def let_go(self) -> str:
        """Part of `Concerned`."""
        return self.ctx.let_go()

    def written(self) -> None:
        """The round's write is done."""
        partition = self.partition
        base_offset, last_offset, append_time_ms, log_start_offset, _ = self.info
        if (
            last_offset >= partition.log.state.log_end_offset
            or partition.held_at is not None
            or (partition.high_watermark <= last_offset and self.known.acks == -1)
        ):
            self.repeated.long_way(self.svc, self.ctx, self.known.request, partition, self.info)
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

    __slots__ = ("bases", "heads", "known", "lasts", "log_start_offset", "partition", "repeated")

    def __init__(
        self,
        repeated: RepeatedProduce,
        connection: Connection,
        known: _Known,
        partition: Partition,
        heads: list[bytes],
        base_offset: int,
        lasts: list[int],
    ) -> None:
        super().__init__(connection, known.route, known.version, 0, known.client_id)
        self.repeated = repeated
        self.known = known
        self.partition = partition
        self.heads = heads
        self.lasts = lasts
        self.bases = [base_offset, *[last + 1 for last in lasts[:-1]]]
        self.log_start_offset = partition.log.state.log_start_offset

    def let_go(self) -> str:
        # It may have been split by now, and its requests have slots of their own.
        self.connection.abort()
        return str(self)

    def written(self) -> None:
        """The round's write is done."""
        partition = self.partition
        known = self.known
        bases = self.bases
        ids = [_INT.unpack_from(head, _CORRELATION_ID.start)[0] for head in self.heads[: len(bases)]]
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
            self.repeated.long_way(self.repeated.svc, context, known.request, partition, info)


def beginning(version: int, frame: memoryview, request: ProduceRequest) -> int:
    """How many bytes stand before the records' length, if such a request can be taken up the short way; else 0. The
    message must end with the frame.
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
    # A length that takes more bytes than it must does not count.
    at = start - max(1, ((len(records) + 1).bit_length() + 6) // 7)
    try:
        is_there = _BODY_AT < at <= LEARNT_BYTES_MAX and read_uvarint(frame, at) == (len(records) + 1, start)
    except (IndexError, DecodeError):
        return 0
    return at if is_there else 0
