"""The few requests that measures send themselves, over a blocking socket: old versions whose bytes are plain.

Bytes as in the protocol guide: a frame is an int32 length and the request; header v1 is api key, version, correlation
id, client id. Answers are read as far as a measure needs them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType

CLIENT_ID = b"scale"
LATEST = -1


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A frame with header v1."""
    header = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


class Connection:
    """A connection to a broker, one request in flight."""

    def __init__(self, bootstrap: str, timeout_s: float = 120.0) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """The body of the answer. Raises OSError."""
        self._socket.sendall(request(api_key, version, body))
        size = int.from_bytes(self._receive(4), "big")
        return self._receive(size)[4:]

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            got += count
        return bytes(data)

    # ---- requests

    def api_versions(self) -> bytes:
        return self.ask(18, 0, b"")

    def metadata_of_all(self) -> bytes:
        """Metadata v1 of all topics."""
        return self.ask(3, 1, struct.pack(">i", -1))

    def log_ends(self, topics: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where the partitions of (topic, number of partitions) end, by topic and index; -1 - error code for those that
        do not say it. ListOffsets v1.
        """
        body = struct.pack(">ii", -1, len(topics))
        for name, count in topics:
            body += string(name) + struct.pack(">i", count)
            body += b"".join(struct.pack(">iq", index, LATEST) for index in range(count))
        answer = self.ask(2, 1, body)
        ends: dict[tuple[str, int], int] = {}
        (left,) = struct.unpack_from(">i", answer)
        position = 4
        for _ in range(left):
            (length,) = struct.unpack_from(">h", answer, position)
            name = answer[position + 2 : position + 2 + length].decode()
            (count,) = struct.unpack_from(">i", answer, position + 2 + length)
            position += 2 + length + 4
            for index, error, _, offset in struct.iter_unpack(">ihqq", answer[position : position + 22 * count]):
                ends[name, index] = -1 - error if error else offset
            position += 22 * count
        return ends

    def describe_topics(self, names: Sequence[str]) -> bytes:
        """All settings of the topics: DescribeConfigs v1."""
        body = struct.pack(">i", len(names))
        body += b"".join(b"\x02" + string(name) + struct.pack(">i", -1) for name in names) + b"\x00"
        return self.ask(32, 1, body)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
