"""Share sessions: what a member fetches from one broker, remembered from request to request (KIP-932). Soft, and tied
to the connection that began each.

A session is of a group's member. Epochs of requests: 0 begins one, −1 ends it, else it is the number that follows the
last request's; 2³¹−1 is followed by 1. Whoever ends a session, or whose connection is gone, gives up the records that
he has in its partitions; one that begins anew does not. Nothing is ever evicted: when there are as many as there may
be, who comes must wait. Memory is bounded as well, unlike in Apache Kafka: all sessions together have at most
`PLACES_MAX` partitions, one of them `SESSION_PLACES_MAX`, whether there are such partitions or not.

An answer to the first request lists all partitions, a later one those with something to say, and those that are new.
Source: `ShareSessionCache`, `ShareSessionContext` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from typing import Final

from barnabas.kproto import ErrorCode, KafkaError

BEGIN: Final = 0
END: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
PLACES_MAX: Final = 300_000
SESSION_PLACES_MAX: Final = 100_000

Place = tuple[bytes, int]
"""Topic id and partition."""


def following_epoch(epoch: int) -> int:
    """The epoch of the request after one with `epoch`."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class ShareSession:
    """One member's. `epoch`: expected of the next request. is_over: it has ended, or another one took its place; a
    request that still knows it gets no records. is_replaced: the latter, so the records are the other one's to release.
    """

    __slots__ = (
        "_has_error",
        "_is_new",
        "_partitions",
        "epoch",
        "group_id",
        "is_over",
        "is_replaced",
        "member_id",
        "owner",
    )

    def __init__(self, group_id: str, member_id: str, owner: Hashable) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.owner = owner
        self.epoch = 1
        self.is_over = self.is_replaced = False
        self._partitions: dict[Place, None] = {}
        self._is_new: set[Place] = set()
        self._has_error: set[Place] = set()

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, place: Place) -> bool:
        return place in self._partitions

    def add(self, places: Iterable[Place]) -> None:
        """Partitions that the member fetches from now on."""
        for place in places:
            if place not in self._partitions:
                self._partitions[place] = None
                self._is_new.add(place)

    def forget(self, places: Iterable[Place]) -> None:
        """Partitions that it does not fetch any more."""
        for place in places:
            self._partitions.pop(place, None)
            self._is_new.discard(place)
            self._has_error.discard(place)

    def in_turn(self) -> list[Place]:
        """The partitions in the order in which they are to be looked into: none is always the first."""
        places = list(self._partitions)
        if not places:
            return places
        first = self.epoch % len(places)
        return [*places[first:], *places[:first]]

    def must_tell(self, place: Place, *, has_records: bool, has_error: bool, is_asked: bool) -> bool:
        """Whether a partition is in the answer. is_asked: the request had acknowledgements for it. An error that is
        over is told once. One that had records comes last next time.
        """
        if place not in self._partitions:
            return is_asked or has_records or has_error
        told = is_asked or has_records or has_error or place in self._is_new or place in self._has_error
        if has_error:
            self._has_error.add(place)
        else:
            self._has_error.discard(place)
        if told:
            self._is_new.discard(place)
        if has_records:
            del self._partitions[place]
            self._partitions[place] = None
        return told

    @property
    def places(self) -> Iterable[Place]:
        """All partitions."""
        return self._partitions.keys()


class ShareSessions:
    """All sessions of one broker. `owner` is what a session ends with: the connection."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_owner: dict[Hashable, set[tuple[str, str]]] = {}
        self._of_group: Counter[str] = Counter()
        self._size = 0  # partitions of all

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session here: with the last one its partitions leave memory."""
        return self._of_group[group_id] > 0

    def begin(self, group_id: str, member_id: str, owner: Hashable, limit: int) -> ShareSession:
        """A new session; one that the member has is forgotten, and keeps its records.

        Raises KafkaError SHARE_SESSION_LIMIT_REACHED.
        """
        before = self._sessions.get((group_id, member_id))
        if before is not None:
            self.end(before)
            before.is_replaced = True
        elif len(self._sessions) >= limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, owner)
        self._by_owner.setdefault(owner, set()).add((group_id, member_id))
        self._of_group[group_id] += 1
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that does not begin one. Unless the request ends it, the next epoch is expected from
        now on.

        Raises KafkaError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; nothing changed then.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != END:
            if epoch != session.epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = following_epoch(epoch)
        return session

    def add(self, session: ShareSession, places: Collection[Place]) -> None:
        """Partitions that a member fetches from now on. Raises KafkaError SHARE_SESSION_LIMIT_REACHED if there is no
        room for them; nothing changed then.
        """
        if session.is_over:
            return
        grown = sum(place not in session for place in places)
        if len(session) + grown > SESSION_PLACES_MAX or self._size + grown > PLACES_MAX:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.add(places)
        self._size += grown

    def forget(self, session: ShareSession, places: Iterable[Place]) -> None:
        """Partitions that it does not fetch any more."""
        before = len(session)
        session.forget(places)
        if not session.is_over:
            self._size -= before - len(session)

    def end(self, session: ShareSession) -> None:
        """The session is over, if it is not already. Its records are the caller's to release."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        session.is_over = True
        self._size -= len(session)
        keys = self._by_owner[session.owner]
        keys.discard(key)
        if not keys:
            del self._by_owner[session.owner]
        self._of_group[session.group_id] -= 1
        if not self._of_group[session.group_id]:
            del self._of_group[session.group_id]

    def end_of(self, owner: Hashable) -> list[ShareSession]:
        """A connection is gone. Returns the sessions that are over with it."""
        ended = [self._sessions[key] for key in sorted(self._by_owner.get(owner, ()))]
        for session in ended:
            self.end(session)
        return ended

    def clear(self) -> list[ShareSession]:
        """All sessions are over. Returns them."""
        ended = list(self._sessions.values())
        for session in ended:
            self.end(session)
        return ended
