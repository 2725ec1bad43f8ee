"""A commit as ZooKeeper's `multi` request, and its answer: pure bytes, no kazoo.

kazoo writes creations into a transaction in the form whose answer lacks the node's ids. Here a creation is a `create2`,
so that every answer brings the czxid – a broker's epoch – with it. ZooKeeper knows create2 since 3.5.

Layout (jute, big endian; a string or buffer is its length as i32 and the bytes, −1 for null):

    request    { header  operation }*  end             header  type i32, done u8, error i32
    create2    path, data, acl count i32, { permissions i32, scheme, id }*, flags i32 (1 ephemeral, 2 sequential)
    delete     path, version i32
    set        path, data, version i32
    check      path, version i32
    answer     { header  result }*  end                create2: path, stat · set: stat · error: error i32 · others: –
    stat       czxid i64, mzxid i64, ctime i64, mtime i64, version, cversion, aversion i32, owner i64, length,
               children i32, pzxid i64

A refused commit answers an error for every operation: 0 for those before the one that failed, its own error there,
−2 for those behind. Empty data are written as null: Apache Kafka makes its nodes without data so, and reads an empty
array as malformed JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.replication.store.store import Check, Create, Delete, Node, Op, Set

_HEADER = struct.Struct("!iBi")
_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")

_CREATE2, _DELETE, _SET, _CHECK, _ERROR = 15, 2, 5, 13, -1
_END = _HEADER.pack(-1, True, -1)
_EPHEMERAL, _SEQUENTIAL = 1, 2

NOT_DONE = -2
"""Error of an operation behind the one that failed (RUNTIMEINCONSISTENCY)."""


class Acl(NamedTuple):
    """One entry of an access list. permissions: 1 read, 2 write, 4 create, 8 delete, 16 admin; 31 all."""

    permissions: int
    scheme: str
    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit did nothing: the operation at `index` met ZooKeeper's error number `error`."""

    index: int
    error: int


def encode_multi(ops: Sequence[Op], root: str, acls: Callable[[str], Sequence[Acl]]) -> bytes:
    """The request for `ops`. root: path under which the tree hangs, '' for none. acls: access list of a path."""
    parts: list[bytes] = []
    for op in ops:
        path = _text(root + op.path if op.path != "/" else root or "/")
        match op:
            case Create():
                flags = (_EPHEMERAL if op.ephemeral else 0) | (_SEQUENTIAL if op.sequential else 0)
                parts += (_HEADER.pack(_CREATE2, False, -1), path, _buffer(op.data), encode_acls(acls(op.path)))
                parts.append(_INT.pack(flags))
            case Set():
                parts += (_HEADER.pack(_SET, False, -1), path, _buffer(op.data), _INT.pack(op.version))
            case Delete():
                parts += (_HEADER.pack(_DELETE, False, -1), path, _INT.pack(op.version))
            case Check():
                parts += (_HEADER.pack(_CHECK, False, -1), path, _INT.pack(op.version))
    parts.append(_END)
    return b"".join(parts)


def encode_acls(acls: Sequence[Acl]) -> bytes:
    """An access list as it stands in a creation."""
    entries = [_INT.pack(acl.permissions) + _text(acl.scheme) + _text(acl.id) for acl in acls]
    return _INT.pack(len(acls)) + b"".join(entries)


def decode_multi(ops: Sequence[Op], root: str, answer: bytes, offset: int = 0) -> list[Node | None] | Refused:
    """What became of `ops`: a node for every Create and Set, or which operation was refused.

    Raises ValueError or struct.error for an answer that does not fit.
    """
    nodes: list[Node | None] = []
    refused: Refused | None = None
    index = 0
    while True:
        kind, done, _ = _HEADER.unpack_from(answer, offset)
        offset += _HEADER.size
        if done:
            break
        if index >= len(ops):
            raise ValueError(f"more results than the {len(ops)} operations")
        op = ops[index]
        if kind == _ERROR:
            (error,) = _INT.unpack_from(answer, offset)
            offset += _INT.size
            if error not in (0, NOT_DONE) and refused is None:
                refused = Refused(index, error)
        elif kind == _CREATE2 and isinstance(op, Create):
            (size,) = _INT.unpack_from(answer, offset)
            offset += _INT.size
            path = answer[offset : offset + size].decode()
            offset += size
            nodes.append(_node(path[len(root) :], op.data, answer, offset))
            offset += _STAT.size
        elif kind == _SET and isinstance(op, Set):
            nodes.append(_node(op.path, op.data, answer, offset))
            offset += _STAT.size
        elif (kind == _DELETE and isinstance(op, Delete)) or (kind == _CHECK and isinstance(op, Check)):
            nodes.append(None)
        else:
            raise ValueError(f"a result of type {kind} for {type(op).__name__}")
        index += 1
    if refused is not None:
        return refused
    if len(nodes) != len(ops):
        raise ValueError(f"{len(nodes)} results for {len(ops)} operations")
    return nodes


def _node(path: str, data: bytes, answer: bytes, offset: int) -> Node:
    stat = _STAT.unpack_from(answer, offset)
    return Node(path, data, version=stat[4], czxid=stat[0], mzxid=stat[1], ephemeral=stat[7] != 0)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT.pack(len(encoded)) + encoded


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data if data else _INT.pack(-1)
