"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and answers name
only what has changed.

A session is a queue of `FetchTarget`s in the order in which they are served; those that returned data go to its end,
so that a response limit does not starve the rest. Slots are few (`max.incremental.fetch.session.cache.slots`); a full
cache evicts a session that was idle for `EVICTION_S`, or a smaller unprivileged one (followers are privileged).
Never getting a slot is correct, only chattier.

Memory is bounded as well, unlike in Apache Kafka: a partition takes some 300 bytes here. All sessions together have at
most `TARGETS_MAX` partitions, one of them `SESSION_TARGETS_MAX`; where there is no room, the largest unprivileged
session is evicted, which may be the new one. A connection has at most `OWNED_MAX` sessions, of which clients need one.
They outlive it, since a client may continue its session on another connection, until they were unused for `EVICTION_S`
(housekeeping checks): they refer to partitions that may be deleted. They do not refer to the connection.

Not done: session slots sharded over several caches (KIP-1079's answer to lock contention, which a single loop does
not have).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from barnabas.kproto import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.server.partitions.partition import Partition

EVICTION_S = 120.0
TARGETS_MAX = 300_000
SESSION_TARGETS_MAX = 100_000
OWNED_MAX = 2
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
UNKNOWN_HIGH_WATERMARK = 2**63 - 1
NOT_SENT = -2
"""In place of an offset that was sent: none was, so the next incremental answer includes the partition."""

TargetKey = tuple[str | bytes, int]


class FetchTarget:
    """One partition in a fetch: what is requested, and in a session what was last sent.

    `known_high_watermark`: what the fetcher says it knows (v18), else the maximum int64. `topic`: name, or None while
    only the id is known. `key`: (name or topic id, partition). `settled`: at the last read a follower was caught up and
    knew all offsets.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
        "known_high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "settled",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key: TargetKey = (topic if topic else topic_id, index)
        self.current_leader_epoch = -1
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.max_bytes = 0
        self.settled = False
        self.known_high_watermark = UNKNOWN_HIGH_WATERMARK
        # The partition found last time; looked up again when it no longer leads.
        self.partition: Partition | None = None
        self.sent_high_watermark = NOT_SENT
        self.sent_log_start_offset = NOT_SENT


class FetchSession:
    """`epoch`: the one that the next request must carry. `by_id`: targets are named by topic id (Fetch 13+). `owner`:
    the connection that opened it, which may be closed. `noted_size`: of `targets`, as the cache counts it. `allowed`:
    the permissions with which all targets may be read, None while not checked (`fetch/access.py`).
    """

    __slots__ = ("allowed", "by_id", "epoch", "last_used", "noted_size", "owner", "privileged", "session_id", "targets")

    def __init__(self, session_id: int, by_id: bool, privileged: bool, targets: dict[TargetKey, FetchTarget]) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.privileged = privileged
        self.targets = targets
        self.last_used = 0.0
        self.owner: ReferenceType[object] | None = None
        self.noted_size = len(targets)
        self.allowed: object = None

    def advance(self) -> None:
        """Set the epoch of the next request; it wraps to 1, since 0 and -1 have special meanings."""
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1


class FetchSessions:
    """The cache of one broker. Times are seconds of trio's clock, passed in. evictions: sessions that were closed to
    make room for others, or were idle.
    """

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        self._size = 0
        self.evictions = 0

    @property
    def size(self) -> int:
        """The partitions of all sessions."""
        return self._size

    def __len__(self) -> int:
        return len(self._sessions)

    def use(self, session_id: int, epoch: int, by_id: bool, now: float) -> FetchSession:
        """The session that an incremental request names. Raises KafkaError FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.last_used = now
        # Kept in order of last use: the first is the oldest.
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def find(self, session_id: int) -> FetchSession | None:
        """The session of that id, without using it."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._size -= session.noted_size

    def resized(self, session: FetchSession) -> None:
        """A request has changed the session's targets. Raises KafkaError FETCH_SESSION_ID_NOT_FOUND when there is no
        room for them: the session is closed, and its client starts a new one.
        """
        grown = len(session.targets) - session.noted_size
        session.noted_size += grown
        self._size += grown
        if grown > 0 and not self._make_space(session.noted_size, session.privileged, 0, session):
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def open(
        self, targets: dict[TargetKey, FetchTarget], by_id: bool, privileged: bool, now: float, owner: object = None
    ) -> FetchSession | None:
        """A new session for `targets`, or None when there is no room for it. owner: the connection."""
        size = len(targets)
        if not targets:
            return None
        self.close_idle(now)
        known = None if owner is None else ref(owner)
        if known is not None and not privileged:
            owned = [session.session_id for session in self._sessions.values() if session.owner == known]
            for session_id in owned[: len(owned) - OWNED_MAX + 1]:
                self.close(session_id)
        if not self._make_room(size, privileged) or not self._make_space(size, privileged, size):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 0x7FFFFFFF)
        session = FetchSession(session_id, by_id, privileged, targets)
        session.last_used = now
        session.owner = known
        self._sessions[session_id] = session
        self._size += size
        return session

    def close_idle(self, now: float) -> None:
        """Close sessions that were unused for `EVICTION_S`."""
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.last_used <= EVICTION_S:
                return
            self._evict(oldest)

    def _make_space(self, size: int, privileged: bool, added: int, session: FetchSession | None = None) -> bool:
        """Room for one session of `size`, of which `added` are not counted yet: the largest are evicted, as long as
        they are larger than it, or have a lower priority.
        """
        if size > SESSION_TARGETS_MAX:
            return False
        while self._size + added > TARGETS_MAX:
            others = [each for each in self._sessions.values() if each is not session]
            victim = max(others, key=lambda each: (not each.privileged, each.noted_size), default=None)
            if victim is None or (not victim.privileged, victim.noted_size) <= (not privileged, size):
                return False
            self._evict(victim)
        return True

    def _make_room(self, size: int, privileged: bool) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        # Evict unprivileged sessions before privileged ones, then the smallest.
        victim = min(self._sessions.values(), key=lambda session: (session.privileged, len(session.targets)))
        if (victim.privileged, len(victim.targets)) < (privileged, size):
            self._evict(victim)
            return True
        return False

    def _evict(self, session: FetchSession) -> None:
        self.evictions += 1
        self.close(session.session_id)
