"""The embedded store on disk: a snapshot of the tree and a journal of what came after it.

Two files in the data directory. Integers are big-endian.

    metadata.snapshot   header, frames of nodes, one closing frame
    metadata.journal    header, frames of commits

    header  8 bytes magic, uint32 format (1), 8 random bytes (the mark), uint32 CRC-32C of the twenty before
    frame   8 bytes mark, uint32 length, uint32 CRC-32C of the payload, payload
    commit  int64 id, uint32 effects, then each: a letter, uint16 length + path (UTF-8), and of
            'P' put       int32 version, int64 czxid, int64 mzxid, int64 made, int64 made beside, uint32 length + data
            'D' drop      nothing
            'E' ephemeral int64 session, then as a put
            'S' session   int64 session, uint32 time-out in ms; its path is empty
            'X' its end   int64 session; its path is empty
    closing int64 id of the last commit in the snapshot, uint32 number of its nodes and sessions

'E', 'S' and 'X' are in the store of several brokers only, which keeps sessions over a restart.

A journal frame holds all commits of one flush, so that whatever a crash leaves half written is one frame, the last.
On opening, a bad last frame is truncated: nothing in it was ever confirmed. A bad frame with a good one *after* it is
damage to confirmed commits, and is refused (`StoreCorrupt`). The mark finds the next frame when a length is damaged;
it is random per file, so that no client can plant one through, say, a topic's configuration.

Replacing: a new snapshot is written beside, synced, renamed; then an empty journal the same way. A crash between the
two leaves a journal whose first commits the snapshot already has: they are skipped by id. So does a failure there, and
the commits go into the old journal.

Lengths are bounded where a commit is accepted (`tree.py`): what is encoded here fits.

Not here: the calls on files (`journal_files.py`), locking the directory (the log directory's `.lock` does it), and
repair.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterable, Sequence

from barnabas.kproto.crc32c import crc32c
from barnabas.replication.store.journal_files import Files
from barnabas.replication.store.node_tree import Drop, Effect, Put, SessionEnded, SessionOpened, Tree
from barnabas.replication.store.store import StoreCorrupt

logger = logging.getLogger(__name__)

JOURNAL = "metadata.journal"
SNAPSHOT = "metadata.snapshot"

_FORMAT = 1
_JOURNAL_MAGIC = b"BNBSJRNL"
_SNAPSHOT_MAGIC = b"BNBSSNAP"
_HEADER = struct.Struct(">8sI8sI")
_FRAME = struct.Struct(">8sII")
_COMMIT = struct.Struct(">qI")
_PATH = struct.Struct(">cH")
_PUT = struct.Struct(">iqqqqI")
_SESSION = struct.Struct(">q")
_OPENED = struct.Struct(">qI")
_CLOSING = struct.Struct(">qI")

_NODES_PER_FRAME = 256
_SNAPSHOT_AFTER_BYTES = 1 << 20


class Journal:
    """Keeps a `Tree` on disk. Every method does file IO and may run in a thread, but only one at a time."""

    def __init__(
        self, files: Files, *, snapshot_after_bytes: int = _SNAPSHOT_AFTER_BYTES, keeps_sessions: bool = False
    ) -> None:
        self._files = files
        self._keeps_sessions = keeps_sessions
        self._snapshot_after_bytes = snapshot_after_bytes
        self._mark = b""
        self._journal_bytes = 0
        self._snapshot_bytes = 0
        self._not_before = 0  # a snapshot has failed: none again before the journal has so many bytes

    @property
    def wants_snapshot(self) -> bool:
        """The journal has outgrown the snapshot, so that writing one costs no more than the journal did."""
        return self._journal_bytes > max(self._snapshot_after_bytes, 2 * self._snapshot_bytes, self._not_before)

    def open(self) -> Tree:
        """Load the tree, cutting off what a crash left half written. Raises StoreCorrupt, OSError."""
        tree = Tree(encode_commit, keeps_sessions=self._keeps_sessions)
        snapshot = self._files.read(SNAPSHOT)
        if snapshot is not None:
            _load_snapshot(snapshot, tree)
            self._snapshot_bytes = len(snapshot)
        data = self._files.read(JOURNAL)
        if data is None:
            if snapshot is not None:
                # A snapshot is only ever written when there was a journal, and the journal is replaced, never removed.
                raise StoreCorrupt(f"{SNAPSHOT} without {JOURNAL}")
            self._start_journal()
            self._files.sync_names()
            self._files.hold(JOURNAL)
            return tree
        self._mark = _read_header(data, _JOURNAL_MAGIC, JOURNAL)
        self._files.hold(JOURNAL)
        good = _replay(data, self._mark, tree)
        if good < len(data):
            logger.warning("%s: truncating %d unconfirmed bytes at %d", JOURNAL, len(data) - good, good)
            self._files.truncate(JOURNAL, good)
        self._journal_bytes = good
        return tree

    def append(self, commits: Sequence[bytes]) -> None:
        """Write encoded commits as one frame; they are on the disk on return. Raises OSError: then nothing of them is
        there, unless the disk refused to truncate them (the log says so).
        """
        frame = _frame(self._mark, b"".join(commits))
        self._files.append(JOURNAL, frame)
        self._journal_bytes += len(frame)

    def snapshot(self, lasting: Sequence[Effect], zxid: int, commits: Sequence[bytes]) -> None:
        """Replace snapshot and journal by the tree (its `lasting` nodes and sessions) as it was after commit `zxid`,
        the last of `commits`, which are on the disk on return. If there cannot be a snapshot now, they are appended.
        Raises OSError as `append`.
        """
        mark = os.urandom(8)
        parts = [_header(_SNAPSHOT_MAGIC, mark)]
        for start in range(0, len(lasting), _NODES_PER_FRAME):
            chunk = lasting[start : start + _NODES_PER_FRAME]
            parts.append(_frame(mark, b"".join([_encode_effect(each) for each in chunk])))
        parts.append(_frame(mark, _CLOSING.pack(zxid, len(lasting))))
        data = b"".join(parts)
        try:
            self._files.replace(SNAPSHOT, data)
            self._files.sync_names()
            self._start_journal()
        except OSError as error:
            logger.warning("writing %s failed, %s keeps growing: %s", SNAPSHOT, JOURNAL, error)
            self._not_before = self._journal_bytes + self._snapshot_after_bytes
            self.append(commits)
        else:
            self._snapshot_bytes = len(data)
            self._not_before = 0

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _start_journal(self) -> None:
        mark = os.urandom(8)
        self._files.replace(JOURNAL, _header(_JOURNAL_MAGIC, mark))
        self._mark = mark
        self._journal_bytes = _HEADER.size


def encode_commit(zxid: int, effects: Iterable[Effect]) -> bytes:
    """One commit as it stands in a journal frame. Without effects (ephemeral nodes only) it keeps the id used up."""
    encoded = [_encode_effect(effect) for effect in effects]
    return _COMMIT.pack(zxid, len(encoded)) + b"".join(encoded)


def _encode_effect(effect: Effect) -> bytes:
    if isinstance(effect, SessionOpened):
        return _PATH.pack(b"S", 0) + _OPENED.pack(effect.session, effect.timeout_ms)
    if isinstance(effect, SessionEnded):
        return _PATH.pack(b"X", 0) + _SESSION.pack(effect.session)
    path = effect.path.encode()
    if isinstance(effect, Drop):
        return _PATH.pack(b"D", len(path)) + path
    kind, owner = (b"E", _SESSION.pack(effect.owner)) if effect.owner else (b"P", b"")
    numbers = _PUT.pack(effect.version, effect.czxid, effect.mzxid, effect.made, effect.made_beside, len(effect.data))
    return b"".join((_PATH.pack(kind, len(path)), path, owner, numbers, effect.data))


def _decode_effect(data: bytes, at: int) -> tuple[Effect, int]:
    kind, length = _PATH.unpack_from(data, at)
    at += _PATH.size
    path = data[at : at + length].decode()
    at += length
    if kind == b"D":
        return Drop(path), at
    if kind == b"S":
        session, timeout_ms = _OPENED.unpack_from(data, at)
        return SessionOpened(session, timeout_ms), at + _OPENED.size
    owner = 0
    if kind in (b"E", b"X"):
        (owner,) = _SESSION.unpack_from(data, at)
        at += _SESSION.size
    if kind == b"X":
        return SessionEnded(owner), at
    if kind not in (b"P", b"E"):
        raise ValueError(f"effect {kind!r}")
    version, czxid, mzxid, made, made_beside, size = _PUT.unpack_from(data, at)
    at += _PUT.size
    if at + size > len(data):
        raise ValueError(f"{path}: data of {size} bytes")
    return Put(path, data[at : at + size], version, czxid, mzxid, made, made_beside, owner), at + size


def _header(magic: bytes, mark: bytes) -> bytes:
    start = _HEADER.pack(magic, _FORMAT, mark, 0)[:-4]
    return start + struct.pack(">I", crc32c(start))


def _read_header(data: bytes, magic: bytes, name: str) -> bytes:
    if len(data) < _HEADER.size:
        raise StoreCorrupt(f"{name}: {len(data)} bytes are no header")
    found, version, mark, crc = _HEADER.unpack_from(data)
    if crc != crc32c(data[: _HEADER.size - 4]) or found != magic:
        raise StoreCorrupt(f"{name}: damaged header")
    if version != _FORMAT:
        raise StoreCorrupt(f"{name}: format {version}; this version reads {_FORMAT}")
    return bytes(mark)


def _frame(mark: bytes, payload: bytes) -> bytes:
    return _FRAME.pack(mark, len(payload), crc32c(payload)) + payload


def _read_frame(data: bytes, at: int, mark: bytes) -> tuple[bytes, int] | None:
    """The payload at `at` and where the next frame starts; None if there is no whole, sound frame."""
    if at + _FRAME.size > len(data):
        return None
    found, length, crc = _FRAME.unpack_from(data, at)
    end = at + _FRAME.size + length
    if found != mark or end > len(data):
        return None
    payload = data[at + _FRAME.size : end]
    return (payload, end) if crc32c(payload) == crc else None


def _replay(data: bytes, mark: bytes, tree: Tree) -> int:
    """Bring `tree` up to the last whole frame; returns where that ends. Raises StoreCorrupt."""
    at = _HEADER.size
    while at < len(data):
        frame = _read_frame(data, at, mark)
        if frame is None:
            later = _next_frame(data, at + 1, mark)
            if later is not None:
                raise StoreCorrupt(f"{JOURNAL}: damage at byte {at}, before confirmed commits at byte {later}")
            return at
        payload, end = frame
        try:
            _replay_frame(payload, tree)
        except (ValueError, struct.error) as exc:
            raise StoreCorrupt(f"{JOURNAL}: frame at byte {at} does not follow: {exc}") from exc
        at = end
    return at


def _replay_frame(payload: bytes, tree: Tree) -> None:
    at = 0
    while at < len(payload):
        zxid, count = _COMMIT.unpack_from(payload, at)
        at += _COMMIT.size
        effects = []
        for _ in range(count):
            effect, at = _decode_effect(payload, at)
            effects.append(effect)
        if zxid > tree.zxid:  # else the snapshot has it
            tree.replay(zxid, effects)


def _next_frame(data: bytes, start: int, mark: bytes) -> int | None:
    at = data.find(mark, start)
    while at >= 0:
        if _read_frame(data, at, mark) is not None:
            return at
        at = data.find(mark, at + 1)
    return None


def _load_snapshot(data: bytes, tree: Tree) -> None:
    mark = _read_header(data, _SNAPSHOT_MAGIC, SNAPSHOT)
    at = _HEADER.size
    payloads = []
    while at < len(data):
        frame = _read_frame(data, at, mark)
        if frame is None:
            raise StoreCorrupt(f"{SNAPSHOT}: damage at byte {at}")
        payload, at = frame
        payloads.append(payload)
    if not payloads or len(payloads[-1]) != _CLOSING.size:
        raise StoreCorrupt(f"{SNAPSHOT}: incomplete")
    zxid, count = _CLOSING.unpack(payloads.pop())
    try:
        for payload in payloads:
            at = 0
            while at < len(payload):
                effect, at = _decode_effect(payload, at)
                match effect:
                    case Put():
                        tree.put(effect)
                    case SessionOpened():
                        tree.put_session(effect)
                    case _:
                        raise ValueError("a deletion in a snapshot")
                count -= 1
    except (ValueError, struct.error) as exc:
        raise StoreCorrupt(f"{SNAPSHOT}: {exc}") from exc
    if count:
        raise StoreCorrupt(f"{SNAPSHOT}: {abs(count)} nodes or sessions too {'few' if count > 0 else 'many'}")
    tree.zxid = zxid
