"""What a subscriber of a store's changes is handed: merged paths, in between the session's events.

Bounded by the number of watched nodes: paths that changed since the last look are one `Changed`, whatever the number
of changes. A session's end and its successor keep their places in the order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable

import trio

from barnabas.replication.store.store import Changed, SessionBack, SessionLost, StoreEvent, parent_of


class EventQueue:
    """Events of some places, for one reader. Offered without waiting, from trio's thread."""

    def __init__(self, places: Collection[str]) -> None:
        self.places = frozenset(places)
        self._events: deque[StoreEvent | set[str]] = deque()
        self._something = trio.Event()

    def offer(self, paths: Iterable[str]) -> None:
        """Take those of `paths` that are a watched place, or a direct child of one."""
        places = self.places
        mine = {path for path in paths if path in places or parent_of(path) in places}
        if mine:
            if self._events and isinstance(self._events[-1], set):
                self._events[-1] |= mine
            else:
                self._events.append(mine)
            self._something.set()

    def lost(self) -> None:
        """The session is over."""
        self._events.append(SessionLost())
        self._something.set()

    def back(self) -> None:
        """There is a new session."""
        self._events.append(SessionBack())
        self._something.set()

    def __aiter__(self) -> AsyncIterator[StoreEvent]:
        return self

    async def __anext__(self) -> StoreEvent:
        await trio.lowlevel.checkpoint()
        while not self._events:
            self._something = trio.Event()
            await self._something.wait()
        event = self._events.popleft()
        return Changed(frozenset(event)) if isinstance(event, set) else event
