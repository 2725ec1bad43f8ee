"""The messages between the store of one machine and its sessions (`socket_server.py`, `socket_link.py`), as bytes.

A frame is uint32 length, one byte of kind, and the fields. Integers are big-endian; text (UTF-8) and data are uint32
length and bytes; a list is uint32 count and its items; a flag is one byte, 0 or 1.

    from a session   1 hello     8 bytes "BNBSSTOR", uint16 format (1), int64 session (0: a new one), uint32 time-out in
                                 ms, text name (for the log)
                     2 ping      nothing
                     3 get       list of paths
                     4 children  path
                     5 commit    list of operations: a letter and its path, then of
                                 'C' create  flag ephemeral, flag sequential, data
                                 'S' set     int32 version, data
                                 'D' delete  int32 version
                                 'K' check   int32 version
                     6 watch     list of paths: tell me of changes there from now on, until the connection ends
                     7 unwatch   list of paths
                     8 close     end my session
    from the store   1 welcome   int64 session, uint32 time-out in ms, flag: it is an old one
                     2 expired   the session is over, or not known; the connection ends
                     3 refused   text: why there will never be a session
                     4 pong      nothing
                     5 nodes     list of: flag, and if it is 1 path, data, int32 version, int64 czxid, int64 mzxid, flag
                                 ephemeral. As many as fit into `ANSWER_BYTES`, but at least one: ask again for the rest
                     6 names     list of names
                     7 done      list of: flag, and if it is 1 path, int32 version, int64 czxid, int64 mzxid, flag
                                 ephemeral; one for each operation
                     8 failed    one byte of error, uint32 index of the operation, path, text
                     9 watched   int64 commit, list of: path, flag, and if it is 1 int64 mzxid, list of: name, int64
                                 mzxid. What is there, all commits up to the one named included
                    10 changed   int64 commit, list of: path, flag: it is there. All changes up to that commit have
                                 been told
                    11 closed    the session is over, as asked

Hello comes first and is answered by 1, 2 or 3; ping by 4, out of order. The others are answered in the order asked: get
by 5, children by 6, commit by 7 or 8, watch by 9, unwatch by an empty 9, close by 11; 8 may stand for any of them.

Bounds: a session's frame has at most `REQUEST_BYTES`, the store's `MOST_BYTES`; a longer one, or one that does not
hold what it should, is a `WireError` and ends the connection. Nothing is made before its bytes are there, so that a
count or a length that lies costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.replication.store.store import (
    AccessDenied,
    Check,
    CommitRefused,
    CommitTooLarge,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    PathTooLong,
    Set,
    StoreError,
    VersionMoved,
)

FORMAT: Final = 1
MAGIC: Final = int.from_bytes(b"BNBSSTOR", "big")
REQUEST_BYTES: Final = (1 << 20) + (1 << 16)
"""Enough for the largest commit that is accepted (`store.MAX_COMMIT_BYTES`)."""
ANSWER_BYTES: Final = 4 << 20
"""Data of the nodes in one answer, roughly."""
MOST_BYTES: Final = 64 << 20
"""The longest answer: a list of children, a million names of usual length."""
NAME_MOST: Final = 200

HELLO, PING, GET, CHILDREN, COMMIT, WATCH, UNWATCH, CLOSE = range(1, 9)
WELCOME, EXPIRED, REFUSED, PONG, NODES, NAMES, DONE, FAILED, WATCHED, CHANGED, CLOSED = range(1, 12)

_ERRORS: Final[Sequence[type[StoreError]]] = (
    StoreError,
    CommitRefused,
    VersionMoved,
    NoSuchNode,
    NodeExists,
    NodeNotEmpty,
    EphemeralParent,
    AccessDenied,
    CommitTooLarge,
    PathTooLong,
)
"""By their numbers on the wire."""

_LENGTH = struct.Struct(">I")
_HELLO = struct.Struct(">QHqI")
_WELCOME = struct.Struct(">qIB")
_VERSION = struct.Struct(">i")
_STAT = struct.Struct(">iqqB")
_ZXID = struct.Struct(">q")
_FAILED = struct.Struct(">BI")


class WireError(Exception):
    """The other end does not keep to the format."""


@dataclass(frozen=True, slots=True)
class Hello:
    """session: 0 for a new one."""

    session: int
    timeout_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class Welcome:
    session: int
    timeout_ms: int
    is_old: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A watched place. mzxid: None if there is no node; children: names and their `mzxid`."""

    mzxid: int | None
    children: dict[str, int]


# -- frames ----------------------------------------------------------------------------------------------------------


class Frames:
    """Frames out of pieces of a stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, piece: bytes | bytearray) -> Iterator[memoryview]:
        """The frames that are complete with this piece, from the kind on. Raises WireError."""
        buffer = self._buffer
        buffer += piece
        if not self._is_complete(buffer, 0):
            return  # a long frame is not copied with every piece of it
        data, at = bytes(buffer), 0
        view = memoryview(data)
        while self._is_complete(data, at):
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            yield view[at + 4 : end]
            at = end
        del buffer[:at]

    def _is_complete(self, data: bytes | bytearray, at: int) -> bool:
        if len(data) < at + 4:
            return False
        (length,) = _LENGTH.unpack_from(data, at)
        if not 0 < length <= self._most_bytes:
            raise WireError(f"a frame of {length} bytes")
        return len(data) - at - 4 >= int(length)


def frame(kind: int, *parts: bytes) -> bytes:
    """A frame as sent."""
    length = 1 + sum(map(len, parts))
    return b"".join((_LENGTH.pack(length), bytes((kind,)), *parts))


class Reader:
    """Fields out of one frame. Raises WireError for what is not there."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 1
        self.kind = view[0]

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            found = layout.unpack_from(self._view, self._at)
        except struct.error as error:
            raise WireError(f"a frame of kind {self.kind} ends early") from error
        self._at += layout.size
        return found

    def number(self) -> int:
        return self.fields(_LENGTH)[0]

    def flag(self) -> bool:
        if self._at >= len(self._view):
            raise WireError(f"a frame of kind {self.kind} ends early")
        self._at += 1
        flag = int(self._view[self._at - 1])
        return flag != 0

    def data(self) -> bytes:
        size = self.number()
        if size > len(self._view) - self._at:
            raise WireError(f"{size} bytes in what is left of a frame of kind {self.kind}")
        self._at += size
        return bytes(self._view[self._at - size : self._at])

    def text(self) -> str:
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise WireError("a text that is not UTF-8") from error

    def count(self, least_bytes: int) -> int:
        """Of a list whose items have at least so many bytes each."""
        count = self.number()
        if count * least_bytes > len(self._view) - self._at:
            raise WireError(f"{count} items in what is left of a frame of kind {self.kind}")
        return count

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.count(4))]

    def end(self) -> None:
        if self._at != len(self._view):
            raise WireError(f"a frame of kind {self.kind} has {len(self._view) - self._at} bytes too many")


def _data(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _text(text: str) -> bytes:
    return _data(text.encode())


def _texts(texts: Sequence[str]) -> bytes:
    return _LENGTH.pack(len(texts)) + b"".join(map(_text, texts))


# -- from a session --------------------------------------------------------------------------------------------------


def encode_hello(hello: Hello) -> bytes:
    fixed = _HELLO.pack(MAGIC, FORMAT, hello.session, hello.timeout_ms)
    return frame(HELLO, fixed, _text(hello.name[:NAME_MOST]))


def decode_hello(view: memoryview) -> Hello | int:
    """The hello; of another format only its number. Raises WireError for what is no hello at all."""
    reader = Reader(view)
    if reader.kind != HELLO:
        raise WireError(f"a frame of kind {reader.kind} instead of a hello")
    magic, number, session, timeout_ms = reader.fields(_HELLO)
    if magic != MAGIC:
        raise WireError("a hello to something else")
    if number != FORMAT:
        return number
    name = reader.text()
    reader.end()
    return Hello(session, timeout_ms, name[:NAME_MOST])


def encode_paths(kind: int, paths: Sequence[str]) -> bytes:
    """Get, watch, unwatch."""
    return frame(kind, _texts(paths))


def encode_children(path: str) -> bytes:
    return frame(CHILDREN, _text(path))


def encode_commit(ops: Sequence[Op]) -> bytes:
    parts = [_LENGTH.pack(len(ops))]
    for op in ops:
        path = _text(op.path)
        match op:
            case Create():
                parts += (b"C", path, bytes((op.ephemeral, op.sequential)), _data(op.data))
            case Set():
                parts += (b"S", path, _VERSION.pack(op.version), _data(op.data))
            case Delete():
                parts += (b"D", path, _VERSION.pack(op.version))
            case Check():
                parts += (b"K", path, _VERSION.pack(op.version))
    return frame(COMMIT, *parts)


def decode_paths(reader: Reader) -> list[str]:
    paths = reader.texts()
    reader.end()
    return paths


def decode_path(reader: Reader) -> str:
    path = reader.text()
    reader.end()
    return path


def decode_commit(reader: Reader) -> list[Op]:
    ops: list[Op] = []
    for _ in range(reader.count(9)):
        kind = reader.fields(_BYTE)[0]
        path = reader.text()
        if kind == _CREATE:
            ephemeral, sequential = reader.flag(), reader.flag()
            ops.append(Create(path, reader.data(), ephemeral, sequential))
            continue
        (version,) = reader.fields(_VERSION)
        if kind == _SET:
            ops.append(Set(path, reader.data(), version))
        elif kind == _DELETE:
            ops.append(Delete(path, version))
        elif kind == _CHECK:
            ops.append(Check(path, version))
        else:
            raise WireError(f"an operation of kind {kind}")
    reader.end()
    return ops


_BYTE = struct.Struct(">B")
_CREATE, _SET, _DELETE, _CHECK = b"CSDK"


# -- from the store --------------------------------------------------------------------------------------------------


def encode_welcome(welcome: Welcome) -> bytes:
    return frame(WELCOME, _WELCOME.pack(welcome.session, welcome.timeout_ms, welcome.is_old))


def encode_refused(why: str) -> bytes:
    return frame(REFUSED, _text(why))


def encode_nodes(nodes: Sequence[Node | None]) -> bytes:
    """As many of `nodes` as fit into one answer, in their order."""
    parts, size, count = [], 0, 0
    for node in nodes:
        if node is None:
            parts.append(b"\0")
        else:
            if count and size + len(node.data) > ANSWER_BYTES:
                break
            size += len(node.data) + len(node.path)
            stat = _STAT.pack(node.version, node.czxid, node.mzxid, node.ephemeral)
            parts += (b"\1", _text(node.path), _data(node.data), stat)
        count += 1
    return frame(NODES, _LENGTH.pack(count), *parts)


def encode_names(names: Sequence[str]) -> bytes:
    return frame(NAMES, _texts(names))


def encode_done(nodes: Sequence[Node | None]) -> bytes:
    parts = [_LENGTH.pack(len(nodes))]
    for node in nodes:
        if node is None:
            parts.append(b"\0")
        else:
            stat = _STAT.pack(node.version, node.czxid, node.mzxid, node.ephemeral)
            parts += (b"\1", _text(node.path), stat)
    return frame(DONE, *parts)


def encode_failed(error: StoreError) -> bytes:
    number = _ERRORS.index(type(error)) if type(error) in _ERRORS else 0
    if isinstance(error, CommitRefused):
        return frame(FAILED, _FAILED.pack(number, error.index), _text(error.path), _text(str(error)))
    return frame(FAILED, _FAILED.pack(number, 0), _text(""), _text(str(error)))


def encode_watched(zxid: int, places: dict[str, Seen]) -> bytes:
    parts = [_ZXID.pack(zxid), _LENGTH.pack(len(places))]
    for path, seen in places.items():
        parts.append(_text(path))
        if seen.mzxid is None:
            parts.append(b"\0")
            continue
        parts += (b"\1", _ZXID.pack(seen.mzxid), _LENGTH.pack(len(seen.children)))
        for name, mzxid in seen.children.items():
            parts += (_text(name), _ZXID.pack(mzxid))
    return frame(WATCHED, *parts)


def encode_changed(zxid: int, paths: dict[str, bool]) -> bytes:
    parts = [_ZXID.pack(zxid), _LENGTH.pack(len(paths))]
    for path, is_there in paths.items():
        parts += (_text(path), b"\1" if is_there else b"\0")
    return frame(CHANGED, *parts)


def decode_welcome(reader: Reader) -> Welcome:
    session, timeout_ms, is_old = reader.fields(_WELCOME)
    reader.end()
    return Welcome(session, timeout_ms, bool(is_old))


def decode_nodes(reader: Reader) -> list[Node | None]:
    nodes: list[Node | None] = []
    for _ in range(reader.count(1)):
        if not reader.flag():
            nodes.append(None)
            continue
        path, data = reader.text(), reader.data()
        version, czxid, mzxid, ephemeral = reader.fields(_STAT)
        nodes.append(Node(path, data, version, czxid, mzxid, bool(ephemeral)))
    reader.end()
    return nodes


def decode_done(reader: Reader, ops: Sequence[Op]) -> list[Node | None]:
    """The results of `ops`, whose data the answer does not repeat."""
    if reader.count(1) != len(ops):
        raise WireError(f"not as many results as the {len(ops)} operations")
    nodes: list[Node | None] = []
    for op in ops:
        if not reader.flag():
            nodes.append(None)
            continue
        if not isinstance(op, Create | Set):
            raise WireError(f"a node for {type(op).__name__}")
        path = reader.text()
        version, czxid, mzxid, ephemeral = reader.fields(_STAT)
        nodes.append(Node(path, op.data, version, czxid, mzxid, bool(ephemeral)))
    reader.end()
    return nodes


def decode_failed(reader: Reader) -> StoreError:
    number, index = reader.fields(_FAILED)
    path, why = reader.text(), reader.text()
    reader.end()
    if number >= len(_ERRORS):
        raise WireError(f"an error of kind {number}")
    kind = _ERRORS[number]
    if issubclass(kind, CommitRefused):
        return kind(path, index, why.removeprefix(f"{path}: "))
    return kind(why)


def decode_watched(reader: Reader) -> tuple[int, dict[str, Seen]]:
    (zxid,) = reader.fields(_ZXID)
    places = {}
    for _ in range(reader.count(5)):
        path = reader.text()
        if not reader.flag():
            places[path] = Seen(None, {})
            continue
        (mzxid,) = reader.fields(_ZXID)
        children = {}
        for _ in range(reader.count(12)):
            name = reader.text()
            (children[name],) = reader.fields(_ZXID)
        places[path] = Seen(mzxid, children)
    reader.end()
    return zxid, places


def decode_changed(reader: Reader) -> tuple[int, dict[str, bool]]:
    (zxid,) = reader.fields(_ZXID)
    paths = {}
    for _ in range(reader.count(5)):
        path = reader.text()
        paths[path] = reader.flag()
    reader.end()
    return zxid, paths
