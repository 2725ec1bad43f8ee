"""The few raw requests that the benchmark sends itself, made by hand, and the parts of answers it looks at.

Bytes as in the protocol guide: every frame is an int32 length and the request; header v1 is api key, version,
correlation id, client id; header v2 has tagged fields behind that. "Flexible" versions have compact lengths (an
unsigned varint of the length plus one) and tagged fields behind each structure, none of which are sent here.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

CORRELATION_ID = 1
CLIENT_ID = b"bench"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 0, 1, 2, 3, 8, 10, 18
FLEXIBLE = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 6,
    METADATA: 9,
    OFFSET_COMMIT: 8,
    FIND_COORDINATOR: 3,
    API_VERSIONS: 3,
}
"""The first flexible version of each."""
NO_TAGS = b"\x00"


def request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a framed request with the header of its version."""
    header = struct.pack(">hhih", api_key, version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    header += NO_TAGS if version >= FLEXIBLE[api_key] else b""
    return struct.pack(">i", len(header) + len(body)) + header + body


def api_versions() -> bytes:
    """Return an ApiVersions v0 request."""
    return request(API_VERSIONS, 0, b"")


def metadata(topic: str) -> bytes:
    """Return a Metadata v12 request for one topic, which does not create it."""
    body = compact_length(1) + bytes(16) + compact_string(topic.encode()) + NO_TAGS + b"\x00\x00" + NO_TAGS
    return request(METADATA, 12, body)


def topic_id(answer: bytes, topic: str) -> bytes:
    """Return the id that an answer to `metadata` has for the topic: it follows the name."""
    name = compact_string(topic.encode())
    place = answer.index(name) + len(name)
    return answer[place : place + 16]


def log_ends(topic: str, partitions: Sequence[int]) -> bytes:
    """Return a ListOffsets v1 request for where partitions end."""
    body = struct.pack(">ii", -1, 1) + string(topic.encode()) + struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">iq", index, -1) for index in partitions)
    return request(LIST_OFFSETS, 1, body)


def find_coordinator(key: str, kind: int) -> bytes:
    """Return a FindCoordinator v2 request; kinds: 0 a group, 1 a transactional id."""
    return request(FIND_COORDINATOR, 2, string(key.encode()) + struct.pack(">b", kind))


def produce_by_name(topic: str, partition: int, batch: bytes, acks: int = 1, timeout_ms: int = 10_000) -> bytes:
    """Return a Produce v7 request for one batch, not idempotent. (v7 is what clients of 2018 to 2020 send.)"""
    body = struct.pack(">hhi", -1, acks, timeout_ms)
    body += struct.pack(">i", 1) + string(topic.encode())
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return request(PRODUCE, 7, body)


def produce_by_id(topic: bytes, partition: int, batch: bytes, acks: int = 1, timeout_ms: int = 10_000) -> bytes:
    """Return a Produce v13 request for one batch, as clients of 2025 and later send it: topics have their ids."""
    body = b"\x00" + struct.pack(">hi", acks, timeout_ms)
    body += compact_length(1) + topic + compact_length(1) + struct.pack(">i", partition)
    body += compact_length(len(batch)) + batch + 3 * NO_TAGS
    return request(PRODUCE, 13, body)


def offset_commit(group: str, topic: str, partitions: int, offset: int) -> bytes:
    """Return an OffsetCommit v9 request by somebody who is no member, for partitions 0 to `partitions` - 1."""
    body = compact_string(group.encode()) + struct.pack(">i", -1) + compact_string(b"") + b"\x00"
    body += compact_length(1) + compact_string(topic.encode()) + compact_length(partitions)
    for index in range(partitions):
        body += struct.pack(">iqi", index, offset, -1) + compact_string(b"") + NO_TAGS
    return request(OFFSET_COMMIT, 9, body + 2 * NO_TAGS)


def fetch_by_id(topic: bytes, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait_ms: int = 500) -> bytes:
    """Return a Fetch v16 request without a session for one partition, as librdkafka sends it."""
    body = struct.pack(">iiibii", max_wait_ms, 1, max_bytes, 0, 0, -1)
    body += compact_length(1) + topic + compact_length(1)
    body += struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + 2 * NO_TAGS
    body += compact_length(0) + compact_string(b"") + NO_TAGS
    return request(FETCH, 16, body)


def one_record_batch(value: bytes) -> bytes:
    """Return a record batch (magic 2) with one record of the current time."""
    record = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(rest), -1, 2, crc32c(rest)) + rest


def string(text: bytes) -> bytes:
    """Return a string of the versions that are not flexible."""
    return struct.pack(">h", len(text)) + text


def compact_string(text: bytes) -> bytes:
    """Return a string of the flexible versions."""
    return compact_length(len(text)) + text


def compact_length(length: int) -> bytes:
    """Return the unsigned varint of a length plus one."""
    return unsigned_varint(length + 1)


def varint(number: int) -> bytes:
    """Return the zigzag varint of a signed number."""
    return unsigned_varint((number << 1) ^ (number >> 63))


def unsigned_varint(rest: int) -> bytes:
    """Return seven bits a byte, the lowest first."""
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C, bit by bit: it is needed a few times per run."""
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
