"""The few raw requests the benchmark sends itself, built once: ApiVersions v0 and Produce v7 with one record.

Bytes as in the protocol guide: every frame is an int32 length and the request; header v1 is api key, version,
correlation id, client id. A produce answer is checked for its error code at a fixed place.
"""

from __future__ import annotations

import socket
import struct
import time

CORRELATION_ID = 1
CLIENT_ID = b"bench"
PRODUCE_VERSION = 7


def request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a framed request with header v1."""
    header = struct.pack(">hhih", api_key, version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def api_versions() -> bytes:
    """Return an ApiVersions v0 request."""
    return request(18, 0, b"")


def produce(topic: str, partition: int, value: bytes, acks: int, timeout_ms: int = 10_000) -> bytes:
    """Return a Produce v7 request for one record without a key, not idempotent."""
    name = topic.encode()
    batch = one_record_batch(value)
    body = struct.pack(">hhi", -1, acks, timeout_ms)
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return request(0, PRODUCE_VERSION, body)


def error_position(topic: str) -> int:
    """Return where the int16 error code of a Produce v7 answer to `produce` lies, counted from the frame's length."""
    length_and_correlation, topic_count, partition_count, index = 8, 4, 4, 4
    return length_and_correlation + topic_count + 2 + len(topic.encode()) + partition_count + index


def one_record_batch(value: bytes) -> bytes:
    """Return a record batch (magic 2) with one record of the current time."""
    record = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(rest), -1, 2, crc32c(rest)) + rest


def varint(number: int) -> bytes:
    """Return the zigzag varint of a signed number."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C, bit by bit: it is needed once per run."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def receive_frame(connection: socket.socket) -> bytes:
    """Return one frame with its length. Raises ConnectionError when the peer closes."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data
