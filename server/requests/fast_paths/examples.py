"""What the fast paths share: positions in a frame, and an answer with room for three numbers."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, TypeVar

from barnabas.server.network.connection import Connection, FastPath
from barnabas.server.requests.context import Route

CORRELATION_ID_AT: Final = 4
"""In a request's frame, without its length: after the API's key and version. In an answer's: after its length."""
BODY_AT: Final = 8

INT_BYTES: Final = 4
LONG_BYTES: Final = 8
int_at = Struct(">i").unpack_from
"""int_at(frame, position) -> (int32,)"""
long_at = Struct(">q").unpack_from
"""long_at(frame, position) -> (int64,)"""

MARKS: Final = (0x0123456789ABCDEF, 0x1123456789ABCDEF, 0x2123456789ABCDEF)
"""Placeholders in an answer for three consecutive numbers that differ from answer to answer."""
MARKS_BYTES: Final = 24

P = TypeVar("P", bound=FastPath)


def around_marks(route: Route, response: Any) -> tuple[bytes, bytes, bytes]:
    """The frame of an answer that has `MARKS` in it: its length, the bytes between the correlation id and the marks,
    and the bytes after them.
    """
    frame = b"".join(bytes(part) for part in route.encode_frame(0, response))  # type: ignore[arg-type]
    head, tail = frame.split(Struct(">qqq").pack(*MARKS))
    return head[:CORRELATION_ID_AT], head[BODY_AT:], tail


def fast_path_of(connection: Connection, kind: type[P]) -> P | None:
    """The connection's fast path of this kind."""
    for path in connection.fast_paths:
        if type(path) is kind:
            return path
    return None
