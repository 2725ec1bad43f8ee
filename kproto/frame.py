"""Frames and headers, without IO.

A frame is an int32 length and that many bytes. A request starts with int16 key, int16 version, int32 correlation id
(header 0), then the client id, a nullable string whose length stays int16 forever (header 1), then tagged fields
(header 2); a response with the correlation id (header 0), then tagged fields (header 1). Flexible versions use the
later headers. Two exceptions: the ApiVersions response always has header 0, so that a client can read it whatever the
broker made of the version it asked; ControlledShutdown version 0 has request header 0.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct
from typing import Final, NamedTuple

from barnabas.kproto.apikeys import ApiKey
from barnabas.kproto.classes import Message
from barnabas.kproto.codec.compile import Part, encoder
from barnabas.kproto.errors import DecodeError, EncodeError
from barnabas.kproto.messages import flexible_from
from barnabas.kproto.primitives import BAD_UTF8, Buffer, read_uvarint

__all__ = [
    "FrameSplitter",
    "RequestHeader",
    "parse_request_header",
    "parse_response_header",
    "request_frame",
    "response_frame",
]

LENGTH: Final = Struct(">i")
MAX_FRAME: Final = 0x7FFFFFFF
_HEADER_0 = Struct(">hhi")
_HEADER_1 = Struct(">hhih")
_RESPONSE_0 = Struct(">ii")
_RESPONSE_1 = Struct(">iix")
# A first part up to this size is joined with the header in front of it.
_JOINED = 64 * 1024
_TAGS_MAX = 1000
"""Tagged fields of a header are walked over one by one, and Kafka defines none."""


class RequestHeader(NamedTuple):
    """`api_key` and `api_version` are what the peer wrote, known or not; `body_offset` is where the message starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def request_header_version(api_key: int, version: int) -> int:
    """0, 1 or 2. Keys without schema count as never flexible."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    flexible = _flexible_from(api_key)
    return 2 if flexible is not None and version >= flexible else 1


def response_header_version(api_key: int, version: int) -> int:
    """0 or 1."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    flexible = _flexible_from(api_key)
    return 1 if flexible is not None and version >= flexible else 0


@cache
def _flexible_from(api_key: int) -> int | None:
    return flexible_from(api_key) if api_key in ApiKey.__members__.values() else None


def parse_request_header(buf: Buffer, offset: int = 0) -> RequestHeader:
    """The header of the request at `offset` (behind the length). DecodeError if it is cut off or malformed, also if its
    client id is longer than a string may be (`barnabas.kproto.primitives.BAD_UTF8`).

    Tagged fields of header 2 are skipped: Kafka defines none. More than 1,000 of them are an error.
    """
    size = len(buf)
    if size - offset < 8:
        raise DecodeError(f"request header of {size - offset} bytes")
    api_key, version, correlation_id = _HEADER_0.unpack_from(buf, offset)
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        return RequestHeader(api_key, version, correlation_id, None, offset + 8)
    if size - offset < 10:
        raise DecodeError("request header without client id")
    length = _HEADER_1.unpack_from(buf, offset)[3]
    end = offset + 10
    client_id = None
    if length >= 0:
        start, end = end, end + length
        if end > size:
            raise DecodeError(f"client id of {length} bytes is cut off")
        client_id = str(buf[start:end], "utf-8", BAD_UTF8)
    if header_version == 2:
        end = _skip_tags(buf, end)
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def parse_response_header(api_key: int, version: int, buf: Buffer, offset: int = 0) -> tuple[int, int]:
    """(correlation id, offset of the body) of the response at `offset` (behind the length)."""
    if len(buf) - offset < 4:
        raise DecodeError(f"response header of {len(buf) - offset} bytes")
    (correlation_id,) = LENGTH.unpack_from(buf, offset)
    end = offset + 4
    if response_header_version(api_key, version) == 1:
        end = _skip_tags(buf, end)
    return correlation_id, end


def _skip_tags(buf: Buffer, offset: int) -> int:
    try:
        if buf[offset] == 0:
            return offset + 1
        count, offset = read_uvarint(buf, offset)
        if count * 2 > len(buf) - offset:
            raise DecodeError(f"header: {count} tagged fields cannot be in {len(buf) - offset} bytes")
        if count > _TAGS_MAX:
            raise DecodeError(f"header: {count} tagged fields, at most {_TAGS_MAX} are read")
        for _ in range(count):
            _, offset = read_uvarint(buf, offset)
            length, offset = read_uvarint(buf, offset)
            offset += length
    except IndexError:
        raise DecodeError("header ends within its tagged fields") from None
    if offset > len(buf):
        raise DecodeError("header ends within a tagged field")
    return offset


def request_frame(version: int, correlation_id: int, client_id: str | None, message: Message) -> bytes:
    """A whole frame for our own clients and tests; the key is the message's own. `records` must be bytes-like."""
    api_key = message.__description__.api_key
    if api_key is None:
        raise EncodeError(f"{type(message).__name__} is no request")
    header_version = request_header_version(api_key, version)
    header = _HEADER_0.pack(api_key, version, correlation_id)
    if header_version > 0:
        text = b"" if client_id is None else client_id.encode()
        header = _HEADER_1.pack(api_key, version, correlation_id, -1 if client_id is None else len(text)) + text
    if header_version > 1:
        header += b"\0"
    body = encoder(type(message), version)(message)
    size = len(header) + sum(map(len, body))
    return b"".join([LENGTH.pack(size), header, *body])  # type: ignore[list-item]


def response_frame(api_key: int, version: int, correlation_id: int, parts: Sequence[Part]) -> list[Part]:
    """Length and response header in front of an encoder's parts. Small neighbouring bytes are joined."""
    size = sum(map(len, parts))
    if response_header_version(api_key, version) == 1:
        size += 5
        head = _RESPONSE_1
    else:
        size += 4
        head = _RESPONSE_0
    if size > MAX_FRAME:
        raise EncodeError(f"response of {size} bytes")
    header = head.pack(size, correlation_id)
    if parts and type(parts[0]) is bytes and len(parts[0]) <= _JOINED:
        return [header + parts[0], *parts[1:]]
    return [header, *parts]


class FrameSplitter:
    """Cuts a byte stream into frames: `for frame in splitter.feed(data)`. Frames come without their length.

    A length below 1 or above `max_bytes` raises DecodeError before anything is kept for it; the stream cannot be
    followed after that.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pending = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """The frames completed by `data`. Iterate to the end: what is not taken is only cut by the next call."""
        self._pending += data
        while len(self._pending) >= 4:
            (size,) = LENGTH.unpack_from(self._pending)
            if not 1 <= size <= self.max_bytes:
                raise DecodeError(f"frame of {size} bytes, 1 to {self.max_bytes} are allowed")
            if len(self._pending) < 4 + size:
                return
            frame = bytes(memoryview(self._pending)[4 : 4 + size])
            del self._pending[: 4 + size]
            yield frame

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that did not make a whole frame yet; not 0 at the end of a stream means it was cut."""
        return len(self._pending)
