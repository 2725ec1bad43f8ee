"""The fetcher's half of incremental fetch sessions (KIP-227): after the first request only what changed is sent.

    id 0, epoch 0       full request, and the leader may open a session: its answer then carries the session's id
    id x, epoch 0       full request; session x is closed, another may be opened
    id x, epoch 1, 2…   incremental: partitions whose values differ from those sent before, and those to forget

`held` is what the leader's session has once it took the request that was built last; answers name partitions of it and
no others. The leader's half is `barnabas.server.requests.fetch.sessions`.

The leader does not repeat high watermark and log start of a partition while they stay the same, whatever the fetcher
did with them: they may have come with a diverging epoch, or in an answer to what was asked in an earlier epoch.
`leader_offsets`
keeps them, so that a partition that is not mentioned can still be brought up to them.

With topic ids (Fetch 13+) partitions are named by id; a topic that was created again is another one, and both halves of
the change (forget the old, add the new) go into one request. Requests that name topics by id and by name do not mix in
one session: a change begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.kproto import ZERO_UUID, ErrorCode

Key = tuple[str, int]
"""Topic and partition."""

_LAST_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """What a fetcher asks of one partition. Epochs are −1 for none; offsets are log offsets."""

    topic: str
    topic_id: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which is of no use here
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Request(NamedTuple):
    """One fetch request: its session's id and epoch, what to send, and what to forget (by name, id and partition)."""

    session_id: int
    session_epoch: int
    send: list[Wanted]
    forget: list[Wanted]


class FetcherSession:
    """See the module."""

    __slots__ = ("_by_id", "_names", "epoch", "held", "leader_offsets", "session_id")

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.held: dict[Key, Wanted] = {}
        self.leader_offsets: dict[Key, tuple[int, int]] = {}
        """High watermark and log start as the leader said them last."""
        self._names: dict[bytes, str] = {}
        self._by_id = False

    @property
    def is_full(self) -> bool:
        """The next request names every partition."""
        return self.epoch == 0

    def build(
        self, by_id: bool, everything: Callable[[], Iterable[Wanted]], changed: Iterable[tuple[Key, Wanted | None]]
    ) -> Request:
        """The next request. everything: all that is wanted, asked for by full requests only; changed: what may differ
        from what is held, None for a partition that is not wanted any more.
        """
        if by_id != self._by_id:
            self._by_id = by_id
            self.epoch = 0
        if self.epoch == 0:
            send = list(everything())
            self.held = {(wanted.topic, wanted.index): wanted for wanted in send}
            self.leader_offsets.clear()
            self._names = {wanted.topic_id: wanted.topic for wanted in send} if by_id else {}
            return Request(self.session_id, 0, send, [])
        send, forget = [], []
        held = self.held
        for key, wanted in changed:
            before = held.get(key)
            if wanted is None:
                if before is not None:
                    del held[key]
                    self.leader_offsets.pop(key, None)
                    forget.append(before)
            elif wanted != before:
                if by_id:
                    if before is not None and before.topic_id != wanted.topic_id:
                        forget.append(before)
                        self.leader_offsets.pop(key, None)
                    self._names[wanted.topic_id] = wanted.topic
                held[key] = wanted
                send.append(wanted)
        return Request(self.session_id, self.epoch, send, forget)

    def topic_of(self, topic: str, topic_id: bytes) -> str | None:
        """The name of a topic in an answer, None if it was not asked for."""
        return self._names.get(topic_id) if self._by_id else topic

    def key_of(self, topic: str | None, topic_id: bytes, index: int) -> Key | None:
        """The partition of an answer, None if the session does not have it; `topic` as from `topic_of`."""
        if topic is None:
            return None
        wanted = self.held.get((topic, index))
        if wanted is None or (self._by_id and wanted.topic_id != topic_id):
            return None
        return topic, index

    def answered(self, session_id: int, partitions: int, known: bool) -> bool:
        """The leader took the request. partitions: how many it answered, known: all of them are held.

        False for an answer that does not fit, which must not be used; the next request is then full.
        """
        full = self.epoch == 0
        if not known or (full and partitions != len(self.held)):
            self.epoch = 0
            if full:
                self.session_id = 0
            return False
        if session_id == 0:  # no slot for us, or the session is empty and closed
            self.session_id = self.epoch = 0
        elif full:
            self.session_id, self.epoch = session_id, 1
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return True

    def refused(self, code: int) -> None:
        """The leader answered with an error for the whole request."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = 0
        self.epoch = 0

    def lost(self) -> None:
        """Whether the leader took the request is not known."""
        self.epoch = 0


def has_id(topic_id: bytes) -> bool:
    """A topic that can be named by its id."""
    return topic_id != ZERO_UUID
