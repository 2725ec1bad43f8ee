"""The coordination store: a small tree of versioned nodes, after ZooKeeper's data model.

One interface, two homes: the embedded store (`store_memory.py`, one broker, no ZooKeeper) and ZooKeeper itself
(`zk.py`, the cluster). Everything above – paths, controller, drivers – is written once, against this file.

What is taken over from ZooKeeper, because Kafka's protocol leans on it:

- A node has bytes, a *version* that counts its writes from 0, and the transaction ids of its creation (`czxid`; a
  broker's registration turns it into the broker epoch) and last write (`mzxid`). Ids rise with every commit.
- `commit` is all or none, and every operation in it sees the ones before it.
- Ephemeral nodes live as long as the session that made them. They have no children.
- A sequential node gets ten digits appended, higher than any sibling made before it.
- A watch reports *where* something changed, never what: the reader reads again. Events are merged, none is lost.

Limits: one commit carries at most `MAX_COMMIT_BYTES` of paths and data, as ZooKeeper's default buffer does, and a path
has at most `MAX_PATH_BYTES`.
Nothing here blocks, reads a clock or starts a task; implementations may await.

Not here: access lists, quotas, containers, node times.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

ANY_VERSION = -1
"""As a `version` to Set, Delete or Check: whatever the node's version is."""

MAX_COMMIT_BYTES = 1_000_000
"""Paths and data of one commit together, in bytes. ZooKeeper refuses packets of 1 MiB (jute.maxbuffer)."""

MAX_PATH_BYTES = 65_535
"""One path in UTF-8, the number of a sequential node included. The embedded store's journal has 16 bits for it."""

_SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Node:
    """One node as it was at one moment.

    version: writes since creation, from 0. czxid, mzxid: ids of the commits that created and last wrote it.
    """

    path: str
    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; its parent must exist. `sequential` appends ten digits to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Write a node that exists, if its version is the given one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children, if its version is the given one."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing; refuse the commit unless the node exists with this version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


@dataclass(frozen=True, slots=True)
class Changed:
    """Nodes of the watched places were created, written or deleted. Merged and without order: read again."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session is over: its ephemeral nodes are gone, or will be before anybody else can see us again."""


@dataclass(frozen=True, slots=True)
class SessionBack:
    """A new session. Assume that everything may have changed."""


StoreEvent = Changed | SessionLost | SessionBack


class StoreError(Exception):
    """Anything a store may raise."""


class StoreClosed(StoreError):
    """Used after close."""


class StoreFailed(StoreError):
    """The store cannot keep its promise any more (a disk error, say). Every later call raises this too."""


class StoreCorrupt(StoreError):
    """What is on disk is not what was written. Never repaired silently."""


class SessionExpired(StoreError):
    """The session ended before the commit could be accepted; nothing was done."""


class ConnectionLost(StoreError):
    """No answer: the commit may have happened or not. Read before trying again."""


class CommitRefused(StoreError):
    """The commit changed nothing. `index` and `path` name the operation that stood in the way."""

    def __init__(self, path: str, index: int = 0, why: str = "") -> None:
        super().__init__(f"{path}: {why or type(self).__name__}")
        self.path = path
        self.index = index


class VersionMoved(CommitRefused):
    """The node has another version: another session wrote it."""


class NoSuchNode(CommitRefused):
    """The node, or the parent of the one to create, does not exist."""


class NodeExists(CommitRefused):
    """The node to create exists."""


class NodeNotEmpty(CommitRefused):
    """The node to delete has children."""


class EphemeralParent(CommitRefused):
    """The parent of the node to create is ephemeral."""


class AccessDenied(CommitRefused):
    """ZooKeeper's access list of the node does not let us. Reads raise it too."""


class CommitTooLarge(CommitRefused):
    """More than MAX_COMMIT_BYTES. Ours to split."""


class PathTooLong(CommitTooLarge):
    """A path of more than MAX_PATH_BYTES."""


class Store(Protocol):
    """One session with the tree.

    Reads are of what is durable, and never older than any commit this session has returned from. Cancelling a
    commit leaves open whether it happens, as a lost connection does.
    """

    async def get(self, path: str) -> Node | None:
        """The node, or None if there is none."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes, in the order asked; not necessarily of one moment."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted; empty if there are none or there is no such node."""
        ...

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        """Do all of `ops` or none; durable on return. One result per operation, None for Delete and Check.

        Raises CommitRefused (its subclasses say why), SessionExpired, ConnectionLost, StoreClosed, StoreFailed.
        """
        ...

    def changes(self, places: Collection[str]) -> AbstractAsyncContextManager[AsyncIterator[StoreEvent]]:
        """Watch `places`: for each, the node itself and its direct children (created, written, deleted).

        Nothing that happens after entering the context is missed. A place need not exist.
        """
        ...


def parent_of(path: str) -> str:
    """'/a/b' → '/a', '/a' → '/'."""
    return path[: path.rfind("/")] or "/"


def name_of(path: str) -> str:
    """'/a/b' → 'b'."""
    return path[path.rfind("/") + 1 :]


def path_of(parent: str, name: str) -> str:
    """'/a', 'b' → '/a/b'; '/', 'a' → '/a'."""
    return f"{parent}/{name}" if parent != "/" else f"/{name}"


def check_path(path: str) -> None:
    """Our own mistakes, not a client's: names reach a store validated. Raises ValueError."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path):
        raise ValueError(f"not a node path: {path!r}")


def check_size(ops: Sequence[Op]) -> None:
    """Raises PathTooLong, CommitTooLarge."""
    size = 0
    for index, op in enumerate(ops):
        path = op.path
        length = len(path) if path.isascii() else len(path.encode())
        if length > MAX_PATH_BYTES - _SEQUENCE_DIGITS:
            raise PathTooLong(f"{path[:100]}…", index, f"a path of {length} bytes")
        size += length + 32
        if isinstance(op, Create | Set):
            size += len(op.data)
    if size > MAX_COMMIT_BYTES:
        raise CommitTooLarge(ops[0].path, 0, f"{len(ops)} operations of more than {MAX_COMMIT_BYTES} bytes")
