"""A socket, frames and just enough hand-packed requests to misbehave on purpose. All integers big-endian."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType

import crc32c

TIMEOUT_S = 60.0
NULL_STRING = b"\xff\xff"


class Closed(Exception):
    """The broker closed the connection."""


def text(value: str | None) -> bytes:
    """A classic string: int16 length, -1 for null."""
    return NULL_STRING if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def compact(value: str) -> bytes:
    """A compact string shorter than 127 bytes."""
    return bytes([len(value.encode()) + 1]) + value.encode()


class Wire:
    """One connection. `request` sends a header of version 1 (or 2 with `flexible`) and a body, `answer` reads the
    next frame's body.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def raw(self, data: bytes) -> None:
        """Send bytes as they are; a broker that closed already is no error here."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def request(
        self,
        key: int,
        version: int,
        body: bytes,
        *,
        correlation_id: int = 7,
        client_id: str | None = "wire",
        flexible: bool = False,
    ) -> None:
        """Send one request."""
        header = struct.pack(">hhi", key, version, correlation_id) + text(client_id) + (b"\0" if flexible else b"")
        self.raw(struct.pack(">i", len(header) + len(body)) + header + body)

    def answer(self, correlation_id: int = 7) -> bytes:
        """The next answer after its correlation id. Raises Closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        return frame[4:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return data

    def closes(self) -> bool:
        """Whether the broker closes without an answer."""
        try:
            self.socket.settimeout(TIMEOUT_S)
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes and nothing closes for a while."""
        try:
            self.socket.settimeout(seconds)
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)
        return False

    def works(self) -> bool:
        """Whether a normal request is answered on this connection."""
        self.request(18, 0, b"", correlation_id=99)
        return struct.unpack_from(">h", self.answer(99))[0] == 0


def varint(value: int) -> bytes:
    """Zigzag varint."""
    zigzag = (value << 1) ^ (value >> 63)
    out = b""
    while zigzag > 0x7F:
        out += bytes([zigzag & 0x7F | 0x80])
        zigzag >>= 7
    return out + bytes([zigzag])


def record(offset_delta: int, value: bytes, timestamp_delta: int = 0) -> bytes:
    """One record of format 2 with a null key and no headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    records: list[bytes],
    *,
    count: int | None = None,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_ms: int | None = None,
    break_crc: bool = False,
    length_off_by: int = 0,
) -> bytes:
    """A record batch; the keyword arguments make it wrong in one way or another. `producer`: id, epoch, base
    sequence. `timestamp_ms`: None for now, as retention deletes what is old.
    """
    last = len(records) - 1 if last_offset_delta is None else last_offset_delta
    total = len(records) if count is None else count
    if timestamp_ms is None:
        timestamp_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", attributes, last, timestamp_ms, timestamp_ms, *producer, total) + b"".join(records)
    crc = crc32c.crc32c(tail) ^ (1 if break_crc else 0)
    return (
        struct.pack(">qiib", base_offset, 4 + 1 + 4 + len(tail) + length_off_by, -1, magic)
        + struct.pack(">I", crc)
        + tail
    )


def produce_body(
    topic: str, partition: int, records: bytes | None, *, acks: int = 1, transactional_id: str | None = None
) -> bytes:
    """The body of Produce 3-8."""
    packed = struct.pack(">i", -1) if records is None else struct.pack(">i", len(records)) + records
    head = text(transactional_id) + struct.pack(">hii", acks, 10_000, 1)
    return head + text(topic) + struct.pack(">ii", 1, partition) + packed


def produce_answer(body: bytes) -> tuple[int, int]:
    """Error code and base offset of the only partition in an answer to Produce 3-8."""
    (topics,) = struct.unpack_from(">i", body)
    assert topics == 1
    (size,) = struct.unpack_from(">h", body, 4)
    partitions, _, error, base_offset = struct.unpack_from(">iihq", body, 6 + size)
    assert partitions == 1
    return error, base_offset


def fetch_body(topic: str, partition: int, offset: int) -> bytes:
    """The body of Fetch 4: one partition, no waiting."""
    return (
        struct.pack(">iiiib", -1, 0, 1, 1 << 24, 0)
        + struct.pack(">i", 1)
        + text(topic)
        + struct.pack(">iiqi", 1, partition, offset, 1 << 24)
    )


def fetch_answer(body: bytes) -> tuple[int, int, bytes]:
    """Error code, high watermark and records of the only partition in an answer to Fetch 4."""
    _, topics = struct.unpack_from(">ii", body)
    assert topics == 1
    (size,) = struct.unpack_from(">h", body, 8)
    at = 10 + size
    partitions, _, error, high_watermark, _ = struct.unpack_from(">iihqq", body, at)
    assert partitions == 1
    at += struct.calcsize(">iihqq")
    (aborted,) = struct.unpack_from(">i", body, at)
    at += 4 + 16 * max(aborted, 0)
    (records,) = struct.unpack_from(">i", body, at)
    return error, high_watermark, body[at + 4 : at + 4 + max(records, 0)]
