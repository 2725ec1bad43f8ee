"""The tree of nodes in memory: ZooKeeper's rules for create, set, delete and check, nothing else.

Pure: no IO, no trio. `Tree.apply` does one commit or nothing, and hands back what a journal must keep (`Effect`s,
encoded: the outcome, not the request – a sequential name is already chosen) and which nodes changed. `Tree.replay`
takes effects back in.

The store of one broker leaves ephemeral nodes out of the effects: a restart ends its session. A tree that
`keeps_sessions` (the store of several brokers) has sessions of its own, opened and ended by commits, and writes them
and their nodes down, so that they survive a restart of the store as they do in ZooKeeper.

Cost: an operation is a few dictionary accesses, whatever the size of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.replication.store.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    Set,
    VersionMoved,
    check_size,
    parent_of,
)


class Put(NamedTuple):
    """A node as it is after a commit.

    made: children made under it so far (numbers sequential names); made_beside: the same for its parent. owner: the
    session of an ephemeral node; 0: persistent.
    """

    path: str
    data: bytes
    version: int
    czxid: int
    mzxid: int
    made: int
    made_beside: int
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A node is gone."""

    path: str


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """There is a session, with its time-out in milliseconds."""

    session: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session is over; its nodes are dropped in the same commit."""

    session: int


Effect = Put | Drop | SessionOpened | SessionEnded

Encode = Callable[[int, Sequence[Effect]], bytes]
"""A commit's id and effects in the form that a journal keeps."""


class _Entry:
    __slots__ = ("children", "czxid", "data", "made", "mzxid", "owner", "version")

    def __init__(self, data: bytes, czxid: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = czxid
        self.mzxid = czxid
        self.owner = owner  # the session of an ephemeral node; 0: persistent
        self.children: set[str] | None = None  # paths; a dict of names would double the memory of a big tree
        self.made = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One accepted commit: a result per operation, what a journal keeps, and the paths that changed."""

    zxid: int
    nodes: list[Node | None]
    encoded: bytes
    changed: list[str]


class Tree:
    """All nodes, from '/' down. `zxid` is the id of the last commit.

    encode: how a commit is written down; None where nothing is kept. keeps_sessions: see the module; `sessions` are
    their time-outs in milliseconds.
    """

    def __init__(self, encode: Encode | None = None, *, keeps_sessions: bool = False) -> None:
        self._encode = encode
        self._keeps_sessions = keeps_sessions
        self.sessions: dict[int, int] = {}
        self._entries: dict[str, _Entry] = {"/": _Entry(b"", 0, 0)}
        self.zxid = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, path: str) -> Node | None:
        """The node at `path`, or None."""
        entry = self._entries.get(path)
        return None if entry is None else _node(path, entry)

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; empty for a node that does not exist."""
        entry = self._entries.get(path)
        if entry is None or not entry.children:
            return []
        skip = len(path) + 1 if path != "/" else 1
        return sorted(child[skip:] for child in entry.children)

    def owned_by(self, session: int) -> list[str]:
        """Paths of the ephemeral nodes of a session."""
        return sorted(path for path, entry in self._entries.items() if entry.owner == session)

    def apply(self, ops: Sequence[Op], session: int) -> Outcome:
        """Do all of `ops` for `session` (a positive number), or raise a CommitRefused and change nothing.

        A refused commit takes no id. Nothing is accepted that cannot be written down: what encoding raises leaves the
        tree as it was, too.
        """
        check_size(ops)
        zxid = self.zxid + 1
        undo: list[Callable[[], None]] = []
        nodes: list[Node | None] = []
        touched: dict[str, None] = {}
        keeps = self._keeps_sessions
        lasting: dict[str, None] = {}  # nodes created, written or deleted of which a journal must know
        try:
            for index, op in enumerate(ops):
                match op:
                    case Create():
                        path = self._create(op, index, zxid, session, undo)
                        nodes.append(_node(path, self._entries[path]))
                        touched[path] = None
                        if keeps or not op.ephemeral:
                            lasting[path] = None
                    case Set():
                        entry = self._write(op, index, zxid, undo)
                        nodes.append(_node(op.path, entry))
                        touched[op.path] = None
                        if keeps or not entry.owner:
                            lasting[op.path] = None
                    case Delete():
                        deleted = self._delete(op, index, undo)
                        if keeps or not deleted.owner:
                            lasting[op.path] = None
                        nodes.append(None)
                        touched[op.path] = None
                    case Check():
                        self._demand(op.path, op.version, index)
                        nodes.append(None)
            encoded = self._encoded(zxid, self._effects(lasting))
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self.zxid = zxid
        return Outcome(zxid, nodes, encoded, list(touched))

    def open_session(self, session: int, timeout_ms: int) -> Outcome:
        """Enter a session (a positive number that none has) into `sessions`."""
        zxid = self.zxid + 1
        encoded = self._encoded(zxid, [SessionOpened(session, timeout_ms)])
        self.sessions[session] = timeout_ms
        self.zxid = zxid
        return Outcome(zxid, [], encoded, [])

    def end_session(self, session: int) -> Outcome:
        """Take a session out of `sessions` and remove its nodes, in one commit of any size. Raises KeyError."""
        _ = self.sessions[session]
        zxid = self.zxid + 1
        paths = self.owned_by(session)
        encoded = self._encoded(zxid, [*map(Drop, paths), SessionEnded(session)])
        for index, path in enumerate(paths):
            self._delete(Delete(path), index, [])
        del self.sessions[session]
        self.zxid = zxid
        return Outcome(zxid, [], encoded, paths)

    def replay(self, zxid: int, effects: Sequence[Effect]) -> None:
        """Take back what `apply` once returned. Raises ValueError if it cannot have followed what is here."""
        if zxid <= self.zxid:
            raise ValueError(f"commit {zxid} after commit {self.zxid}")
        for effect in effects:
            match effect:
                case Put():
                    self.put(effect)
                case Drop():
                    entry = self._entries.pop(effect.path, None)  # None: came and went within its commit
                    if entry is not None:
                        if entry.children:
                            raise ValueError(f"deletion of {effect.path}, which has children")
                        self._disown(effect.path)
                case SessionOpened():
                    self.put_session(effect)
                case SessionEnded():
                    self.sessions.pop(effect.session, None)
        self.zxid = zxid

    def put_session(self, opened: SessionOpened) -> None:
        """Enter a session as it was (journal and snapshot loading)."""
        if self._keeps_sessions:
            self.sessions[opened.session] = opened.timeout_ms

    def put(self, put: Put) -> None:
        """Place a node as it was (journal and snapshot loading). Raises ValueError without its parent."""
        if put.owner and not self._keeps_sessions:
            return  # the session has ended with the store of several brokers that kept it
        entry = self._entries.get(put.path)
        if entry is None:
            parent = self._entries.get(parent_of(put.path))
            if parent is None or put.path == "/":
                raise ValueError(f"{put.path} without its parent")
            entry = self._entries[put.path] = _Entry(put.data, put.czxid, put.owner)
            if parent.children is None:
                parent.children = set()
            parent.children.add(put.path)
            parent.made = max(parent.made, put.made_beside)
        entry.made = max(entry.made, put.made)
        entry.data, entry.version, entry.czxid, entry.mzxid = put.data, put.version, put.czxid, put.mzxid
        entry.owner = put.owner

    def lasting_nodes(self) -> Iterator[Put]:
        """Every node but the root that outlives the process, parents first: what a snapshot holds.

        The dictionary's order is enough: a node enters it after its parent, also when a refused commit is undone.
        """
        for path, entry in self._entries.items():
            if path != "/" and (self._keeps_sessions or not entry.owner):
                yield self._put(path, entry)

    def lasting_sessions(self) -> Iterator[SessionOpened]:
        """Every session: what a snapshot holds beside the nodes."""
        for session, timeout_ms in self.sessions.items():
            yield SessionOpened(session, timeout_ms)

    def _encoded(self, zxid: int, effects: Sequence[Effect]) -> bytes:
        return b"" if self._encode is None else self._encode(zxid, effects)

    def _effects(self, paths: Iterable[str]) -> list[Effect]:
        """What became of `paths`: children go before parents, and come after them."""
        drops: list[Effect] = []
        puts: list[Effect] = []
        for path in sorted(paths, key=len):
            entry = self._entries.get(path)
            if entry is None or (entry.owner and not self._keeps_sessions):
                drops.append(Drop(path))
            else:
                puts.append(self._put(path, entry))
        return drops[::-1] + puts

    def _put(self, path: str, entry: _Entry) -> Put:
        beside = self._entries[parent_of(path)].made
        return Put(path, entry.data, entry.version, entry.czxid, entry.mzxid, entry.made, beside, entry.owner)

    def _demand(self, path: str, version: int, index: int) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoSuchNode(path, index)
        if version not in (ANY_VERSION, entry.version):
            raise VersionMoved(path, index, f"version {entry.version}, not {version}")
        return entry

    def _create(self, op: Create, index: int, zxid: int, session: int, undo: list[Callable[[], None]]) -> str:
        above = parent_of(op.path)
        parent = self._entries.get(above)
        if parent is None:
            raise NoSuchNode(op.path, index, f"no parent {above}")
        if parent.owner:
            raise EphemeralParent(op.path, index)
        if op.ephemeral and self._keeps_sessions and session not in self.sessions:
            raise ValueError(f"{op.path} of a session that is over")  # it would never be removed
        path = f"{op.path}{parent.made:010d}" if op.sequential else op.path
        if path in self._entries:
            raise NodeExists(path, index)
        _check_path(path)
        self._entries[path] = _Entry(op.data, zxid, session if op.ephemeral else 0)
        if parent.children is None:
            parent.children = set()
        parent.children.add(path)
        made = parent.made
        parent.made += 1

        def back() -> None:
            del self._entries[path]
            self._disown(path)
            parent.made = made

        undo.append(back)
        return path

    def _write(self, op: Set, index: int, zxid: int, undo: list[Callable[[], None]]) -> _Entry:
        entry = self._demand(op.path, op.version, index)
        before = entry.data, entry.version, entry.mzxid

        def back() -> None:
            entry.data, entry.version, entry.mzxid = before

        undo.append(back)
        entry.data, entry.version, entry.mzxid = op.data, entry.version + 1, zxid
        return entry

    def _delete(self, op: Delete, index: int, undo: list[Callable[[], None]]) -> _Entry:
        entry = self._demand(op.path, op.version, index)
        if entry.children or op.path == "/":
            raise NodeNotEmpty(op.path, index)
        parent = self._entries[parent_of(op.path)]

        def back() -> None:
            self._entries[op.path] = entry
            if parent.children is None:
                parent.children = set()
            parent.children.add(op.path)

        undo.append(back)
        del self._entries[op.path]
        self._disown(op.path)
        return entry

    def _disown(self, path: str) -> None:
        children = self._entries[parent_of(path)].children
        assert children is not None
        children.discard(path)


def _node(path: str, entry: _Entry) -> Node:
    return Node(path, entry.data, entry.version, entry.czxid, entry.mzxid, entry.owner != 0)


def _check_path(path: str) -> None:
    """Our own mistakes, not a client's: names reach this place validated."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise ValueError(f"not a node path: {path!r}")
