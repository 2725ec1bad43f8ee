"""Produce requests that begin like an earlier one of their connection: all up to the topic is equal.

A busy producer has several requests in flight, which arrive together. Consecutive plain ones are a *run* (`take_run`):
looked up once, appended together (`Appender.append_run`), answered with one buffer.

Every batch is checked and appended as usual. Anything but plain success once it is staged (a commit or a flush to wait
for, a time stamped by the broker, a lost write, another partition that refuses its batch) is completed by
`barnabas.server.requests.produce.pending`.

Only versions from 5 on, without transactional id, partitions of one topic that is not internal. `LEARNT_MAX` beginnings
are remembered for each connection, of `PATHS_MAX` lengths, so that a client that never repeats itself costs little.
"""

from __future__ import annotations

from barnabas.kproto import KafkaError
from barnabas.kproto.allowance import TooMuchWork
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import ProduceRequest
from barnabas.kproto.records import TRANSACTIONAL
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE
from barnabas.logdir import AppendInfo, AppendOrigin
from barnabas.server.network.connection import Connection
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import BODY_AT, CORRELATION_ID_AT, INT_BYTES, int_at
from barnabas.server.requests.fast_paths.produce_frames import (
    BY_ID_FROM,
    FIRST_VERSION,
    Known,
    Place,
    beginning_bytes,
    layout_of,
)
from barnabas.server.requests.produce.pending import ZSTD, ZSTD_FROM, finish_staged, go_on_behind
from barnabas.server.requests.services import Services

LEARNT_MAX = 16
PATHS_MAX = 4
RUN_MAX = 64
"""The longest run."""
PLACES_MAX = 32
"""Frame sizes that are remembered for each path."""

Staged = tuple[Partition, AppendInfo]


class ProduceFastPath:
    """Beginnings known of one connection: `at` bytes long, of versions with one layout. `length_at`: where the batch's
    length is if there is one batch. A `FastPath`.
    """

    __slots__ = ("at", "known", "layout", "length_at", "places", "svc")

    def __init__(self, svc: Services, version: int, at: int) -> None:
        self.svc = svc
        self.at = at
        self.layout = layout_of(version)
        self.length_at = at + len(self.layout.one) + INT_BYTES
        self.known: dict[bytes, Known] = {}
        self.places: dict[int, Place] = {}

    def remember(self, ctx: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Remember how this request begins, `at` bytes."""
        start = bytes(frame[: self.at])
        self.known[start[BODY_AT:]] = Known(ctx, start[:CORRELATION_ID_AT], request)

    def knows(self, frame: memoryview) -> bool:
        """Whether it begins so, so that there is nothing to learn from it."""
        return bytes(frame[BODY_AT : self.at]) in self.known

    def take(self, connection: Connection, frame: memoryview) -> RequestContext | None:
        """Part of `FastPath`: a request with a known beginning."""
        at, length_at = self.at, self.length_at
        place = self.places.get(len(frame)) or self._place(len(frame))
        if place is None:
            return None
        position, end, length = place
        start = frame[:position].tobytes()  # bytes are compared several times as fast as a view of them
        known = self.known.get(start[BODY_AT:at])
        if known is None or not start.startswith(known.key) or self.svc.quotas.limits_requests:
            return None
        if start[at : length_at - INT_BYTES] != self.layout.one:
            return self._take_several(connection, known, frame)
        attributes = frame[position + ATTRIBUTES_LOW_BYTE]
        if (
            start[length_at:] != length
            or frame[end:] != self.layout.tail
            or (attributes and _is_refused(attributes, known.version))
        ):
            return None
        (index,) = int_at(start, length_at - INT_BYTES)
        svc = self.svc
        try:
            partition = self._partition(known, index)
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
        staged = _Staged(svc, connection, known, correlation_id, partition, info)
        svc.partitions.after_write(staged.written)
        return staged

    def _take_several(self, connection: Connection, known: Known, frame: memoryview) -> RequestContext | None:
        """A request of several partitions. What the first one refuses is left to the slow path, as is the rest of the
        request when a later one does.
        """
        parts = self.layout.parts(frame, self.at)
        if parts is None:
            return None
        svc = self.svc
        version = known.version
        for _, batch in parts:
            if _is_refused(batch[ATTRIBUTES_LOW_BYTE], version):
                return None
        allowance, now_ms = svc.partitions.allowance, svc.wall_ms()
        staged: list[Staged] = []
        for index, batch in parts:
            try:
                partition = self._partition(known, index)
                if partition is None:
                    return None
                info = partition.append(
                    batch,
                    origin=AppendOrigin.CLIENT,
                    now_ms=now_ms,
                    required_acks=known.acks,
                    allowance=allowance,
                )
            except (KafkaError, TooMuchWork):
                if not staged:
                    return None
                break
            staged.append((partition, info))
        (correlation_id,) = int_at(frame, CORRELATION_ID_AT)
        if len(staged) == len(parts):
            whole = _StagedParts(svc, connection, known, correlation_id, staged)
            svc.partitions.after_write(whole.written)
            return whole
        ctx = RequestContext(connection, known.route, version, correlation_id, known.client_id)
        request, _ = known.route.decode(frame, parse_request_header(frame).body_offset, known.route.elements_max)
        go_on_behind(svc, ctx, request, staged)
        return ctx

    def take_run(self, connection: Connection, view: memoryview, position: int) -> tuple[RequestContext, int] | None:
        """Part of `FastPath`: plain requests to one partition, with the same beginning."""
        length_at, end = self.length_at, len(view)
        tail = self.layout.tail
        behind_at = INT_BYTES + length_at
        known: Known | None = None
        body = b""
        batches: list[memoryview] = []
        heads: list[bytes] = []
        ends: list[int] = []
        while end - position > behind_at and len(batches) < RUN_MAX:
            size = int_at(view, position)[0]
            place = self.places.get(size)
            if place is None:
                break
            first, last, length = place
            start = view[position + INT_BYTES : position + behind_at].tobytes()
            frame_end = position + INT_BYTES + size
            if known is None:
                body = start[BODY_AT:]
                known = self.known.get(start[BODY_AT : self.at])
                if known is None or start[self.at : -INT_BYTES] != self.layout.one:
                    return None
            elif start[BODY_AT:] != body:
                break
            first += position + INT_BYTES
            last += position + INT_BYTES
            if (
                frame_end > end
                or not start.startswith(known.key)
                or view[position + behind_at : first] != length
                or view[last:frame_end] != tail
            ):
                break
            batches.append(view[first:last])
            heads.append(start)
            ends.append(frame_end)
            position = frame_end
        if len(batches) < 2 or known is None:
            return None
        (index,) = int_at(body, len(body) - INT_BYTES)
        try:
            partition = self._partition(known, index)
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

    def _partition(self, known: Known, index: int) -> Partition | None:
        """None for one of an internal topic. Raises KafkaError."""
        topic = known.request.topic_data[0]
        if known.version >= BY_ID_FROM:
            partition = self.svc.partitions.get_by_id(topic.topic_id, index)
        else:
            partition = self.svc.partitions.get(topic.name, index)
        return None if partition.topic.startswith("__") else partition

    def _place(self, frame_bytes: int) -> Place | None:
        place = self.layout.place(frame_bytes, self.length_at)
        if place is not None:
            if len(self.places) >= PLACES_MAX:
                self.places.clear()
            self.places[frame_bytes] = place
        return place


def _is_refused(attributes: int, version: int) -> bool:
    """Whether the slow path refuses such a batch: a transactional one without a transactional id, zstd too early."""
    return bool(attributes & TRANSACTIONAL) or (version < ZSTD_FROM and attributes & 7 == ZSTD)


def _is_plain(partition: Partition, last_offset: int, acks: int) -> bool:
    """Whether what is staged up to `last_offset` can be answered after the round's write, with success."""
    return last_offset < partition.log.state.log_end_offset and (
        acks == 0 or (partition.held_at is None and (acks == 1 or partition.high_watermark > last_offset))
    )


class _Staged(RequestContext):
    """A request between its append and its answer."""

    __slots__ = ("info", "known", "partition", "svc")

    def __init__(
        self,
        svc: Services,
        connection: Connection,
        known: Known,
        correlation_id: int,
        partition: Partition,
        info: AppendInfo,
    ) -> None:
        super().__init__(connection, known.route, known.version, correlation_id, known.client_id)
        self.svc = svc
        self.known = known
        self.partition = partition
        self.info = info

    def written(self) -> None:
        """The round's write is done."""
        partition, known = self.partition, self.known
        base_offset, last_offset, append_time_ms, start, _ = self.info
        if not _is_plain(partition, last_offset, known.acks):
            finish_staged(self.svc, self, known.request, [(partition, self.info)])
        elif known.acks == 0:
            self.no_reply()
        else:
            index, head, tail = partition.index, known.head, known.tail
            self.reply_encoded(
                known.pack(known.size, self.correlation_id, head, index, base_offset, append_time_ms, start, tail)
            )


class _StagedParts(RequestContext):
    """The same for several partitions."""

    __slots__ = ("known", "staged", "svc")

    def __init__(
        self, svc: Services, connection: Connection, known: Known, correlation_id: int, staged: list[Staged]
    ) -> None:
        super().__init__(connection, known.route, known.version, correlation_id, known.client_id)
        self.svc = svc
        self.known = known
        self.staged = staged

    def written(self) -> None:
        """The round's write is done."""
        known = self.known
        acks = known.acks
        if not all(_is_plain(partition, info.last_offset, acks) for partition, info in self.staged):
            finish_staged(self.svc, self, known.request, self.staged)
        elif acks == 0:
            self.no_reply()
        else:
            answers = [
                (partition.index, info.base_offset, info.log_append_time_ms, info.log_start_offset)
                for partition, info in self.staged
            ]
            self.reply_encoded(known.answer(self.correlation_id, answers))


class _Run(RequestContext):
    """Requests of a run, between their append and their answers, which leave together: one slot for all of them."""

    __slots__ = ("bases", "heads", "known", "lasts", "log_start_offset", "partition", "svc")

    def __init__(
        self,
        svc: Services,
        connection: Connection,
        known: Known,
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

    @property
    def request_count(self) -> int:  # type: ignore[override]
        return len(self.heads)

    def release_waiters(self) -> str:
        # It may have been split already, so that its requests have slots of their own.
        self.connection.abort()
        return str(self)

    def written(self) -> None:
        """The round's write is done."""
        partition = self.partition
        known = self.known
        bases = self.bases
        if not _is_plain(partition, self.lasts[-1], known.acks):
            self._finish_one_by_one()
        elif known.acks == 0:
            self.no_reply()
        else:
            pack, size, head, index, tail = known.pack, known.size, known.head, partition.index, known.tail
            start = self.log_start_offset
            self.reply_encoded(
                b"".join(
                    [
                        pack(size, one, head, index, base, -1, start, tail)
                        for one, base in zip(self._ids(), bases, strict=True)
                    ]
                )
            )

    def _ids(self) -> list[int]:
        """The correlation ids of those that were appended."""
        return [int_at(head, CORRELATION_ID_AT)[0] for head in self.heads[: len(self.bases)]]

    def _finish_one_by_one(self) -> None:
        known = self.known
        contexts = [
            RequestContext(self.connection, known.route, known.version, one, known.client_id) for one in self._ids()
        ]
        self.connection.split(self, contexts)
        for context, base, last in zip(contexts, self.bases, self.lasts, strict=True):
            info = AppendInfo(base, last, -1, self.log_start_offset)
            finish_staged(self.svc, context, known.request, [(self.partition, info)])


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
    """Remember the beginning of this request. Part of `barnabas.server.requests.api.Api`."""
    version = ctx.api_version
    if (
        version < FIRST_VERSION
        or request.transactional_id is not None
        or request.acks not in (1, -1, 0)
        or len(request.topic_data) != 1
        or not ctx.pipelined  # it is held
    ):
        return
    layout = layout_of(version)
    paths = [path for path in ctx.connection.fast_paths if type(path) is ProduceFastPath]
    if sum(len(path.known) for path in paths) >= LEARNT_MAX:
        return
    if any(path.layout is layout and path.knows(frame) for path in paths):
        return
    at = beginning_bytes(version, frame, request)
    if not at:
        return
    for path in paths:
        if path.at == at and path.layout is layout:
            break
    else:
        if len(paths) == PATHS_MAX:
            return
        path = ProduceFastPath(svc, version, at)
        ctx.connection.fast_paths.append(path)
    path.remember(ctx, frame, request)
