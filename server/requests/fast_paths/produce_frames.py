"""Produce requests of one topic as bytes: where they begin to differ, which batches are in them, and their answers.

    header, transactional id, acks, timeout, one topic: name or id   the beginning: equal in all like it
    count of partitions                                              int32, or compact: a byte, or more
    of each: index, length, the batch                                int32; int32, or compact; from v9 on, a tag count
    tag counts of topic and request                                  from v9 on

Source: Apache Kafka's ProduceRequest.json and ProduceResponse.json. Versions 3 and 4 are left out: their answers lack
the log start offset, and nobody has sent them for years.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from barnabas.kproto import DecodeError, read_uvarint, uvarint
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.kproto.records import BATCH_OVERHEAD
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import (
    INT_BYTES,
    LONG_BYTES,
    MARKS,
    around_marks,
    int_at,
)

FIRST_VERSION: Final = 5
FLEXIBLE_FROM: Final = 9
BY_ID_FROM: Final = 13

PARTS_MAX: Final = 100
"""Partitions of a request."""
BEGINNING_BYTES_MAX: Final = 1024
"""Room for a topic's name and 700 bytes of client id. A header's tagged fields may have any size."""

_INDEX_AND_ERROR_BYTES: Final = 6
_ID_BYTES: Final = 16
_HEAD: Final = Struct(">ii").pack

Place = tuple[int, int, bytes]
"""Where the one batch of a frame begins and ends, and the bytes of its length, which precede it."""


class Layout(NamedTuple):
    """What versions have in common. `tail`: behind the last batch. `one`: a count of one."""

    is_flexible: bool
    tail: bytes
    one: bytes

    def length(self, number: int) -> bytes:
        """An array's length as these versions write it."""
        return uvarint(number + 1) if self.is_flexible else number.to_bytes(INT_BYTES, "big")

    def place(self, frame_bytes: int, length_at: int) -> Place | None:
        """For frames of this size with one batch, whose length is at `length_at`; None: there is no room for one."""
        end = frame_bytes - len(self.tail)
        length = b""
        position = length_at + INT_BYTES
        if self.is_flexible:
            for position in range(length_at + 1, length_at + 6):
                length = uvarint(max(0, end - position) + 1)
                if length_at + len(length) == position:
                    break
        else:
            length = max(0, end - position).to_bytes(INT_BYTES, "big")
        return (position, end, length) if end - position >= BATCH_OVERHEAD else None

    def parts(self, frame: memoryview, at: int) -> list[tuple[int, memoryview]] | None:
        """Index and batch of each partition of a topic that ends at `at`. None: that is not what follows, to the end of
        the frame, or there are too many.
        """
        end = len(frame)
        try:
            if self.is_flexible:
                count, at = frame[at] - 1, at + 1
            else:
                count, at = int_at(frame, at)[0], at + INT_BYTES
            if not 0 < count <= PARTS_MAX:
                return None
            parts = []
            for _ in range(count):
                (index,) = int_at(frame, at)
                at += INT_BYTES
                if self.is_flexible:
                    length, at = read_uvarint(frame, at)
                    length -= 1
                else:
                    length, at = int_at(frame, at)[0], at + INT_BYTES
                last = at + length
                if length < BATCH_OVERHEAD or last > end:
                    return None
                parts.append((index, frame[at:last]))
                at = last
                if self.is_flexible:
                    if frame[at]:
                        return None
                    at += 1
        except (IndexError, DecodeError, struct.error):
            return None
        return parts if frame[at:] == self.tail[1:] else None


_COMPACT: Final = Layout(True, bytes(3), b"\x02")
_PLAIN: Final = Layout(False, b"", b"\0\0\0\x01")


def layout_of(version: int) -> Layout:
    return _COMPACT if version >= FLEXIBLE_FROM else _PLAIN


def beginning_bytes(version: int, frame: memoryview, request: ProduceRequest) -> int:
    """How long the beginning of a request of one topic is; 0: it cannot be taken apart here, or is too long."""
    topic = request.topic_data[0]
    header = parse_request_header(frame).body_offset
    if version >= FLEXIBLE_FROM:
        at = header + 1 + 2 + 4 + 1  # no transactional id, acks, timeout, one topic
        if version >= BY_ID_FROM:
            at += _ID_BYTES
        else:
            name = topic.name.encode()
            at += len(uvarint(len(name) + 1)) + len(name)
    else:
        at = header + 2 + 2 + 4 + 4 + 2 + len(topic.name.encode())
    parts = layout_of(version).parts(frame, at) if at <= BEGINNING_BYTES_MAX else None
    if parts is None:
        return 0
    # What is encoded otherwise than usual shows here.
    decoded = [(data.index, len(data.records or b"")) for data in topic.partition_data]
    return at if decoded == [(index, len(batch)) for index, batch in parts] else 0


class Known:
    """A beginning decoded, and the answer to the requests that have it.

    `pack(size, correlation_id, head, index, base_offset, log_append_time_ms, log_start_offset, tail)`: the answer for
    one partition.
    """

    __slots__ = (
        "_ahead",
        "_behind",
        "_layout",
        "_pack_part",
        "_part_tail",
        "acks",
        "client_id",
        "head",
        "key",
        "pack",
        "request",
        "route",
        "size",
        "tail",
        "version",
    )

    def __init__(self, ctx: RequestContext, key: bytes, request: ProduceRequest) -> None:
        self.route = ctx.route
        self.version = ctx.api_version
        self.client_id = ctx.client_id
        self.key = key
        self.acks = request.acks
        topic = request.topic_data[0]
        # Without partitions: the records lie in the receive buffer.
        self.request = ProduceRequest(
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[])],
        )
        marked = ProduceResponse.PartitionProduceResponse(index=0)
        marked.base_offset, marked.log_append_time_ms, marked.log_start_offset = MARKS

        def constants(count: int) -> tuple[bytes, ...]:
            answered = ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[marked] * count
            )
            return around_marks(ctx.route, ProduceResponse(responses=[answered]))

        # Index and error code precede the marks.
        head, tail = constants(1)
        _, between, _ = constants(2)
        layout = layout_of(self.version)
        self.head, self.tail = head[:-_INDEX_AND_ERROR_BYTES], tail
        self.size = INT_BYTES + len(head) + 3 * LONG_BYTES + len(tail)
        self.pack = Struct(f">ii{len(self.head)}si2xqqq{len(tail)}s").pack
        self._layout = layout
        self._ahead = self.head[: -len(layout.one)]
        self._part_tail = between[:-_INDEX_AND_ERROR_BYTES]
        self._behind = tail[len(self._part_tail) :]
        self._pack_part = Struct(f">i2xqqq{len(self._part_tail)}s").pack

    def answer(self, correlation_id: int, parts: list[tuple[int, int, int, int]]) -> bytes:
        """The answer for several partitions: index, base offset, log append time and log start offset of each."""
        pack, tail = self._pack_part, self._part_tail
        body = b"".join(
            [self._ahead, self._layout.length(len(parts)), *[pack(*part, tail) for part in parts], self._behind]
        )
        return _HEAD(INT_BYTES + len(body), correlation_id) + body
