"""What a subscriber of a store's changes is handed: merged paths, in between the session's events. And the subscribers
of one session, with the places that they share.

Bounded by the number of watched nodes: paths that changed since the last look are one `Changed`, whatever the number
of changes. A session's end and its successor keep their places in the order.
"""

from __future__ import annotations

from collections import Counter, deque
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


class Subscribers:
    """Those of one session. What it takes to watch a place is the session's business; here is who wants which."""

    def __init__(self) -> None:
        self._queues: set[EventQueue] = set()
        self._users: Counter[str] = Counter()

    def enter(self, places: Collection[str]) -> tuple[EventQueue, list[str]]:
        """A new subscriber, and those of its places that nobody had before."""
        queue = EventQueue(places)
        self._queues.add(queue)
        added = [path for path in queue.places if path not in self._users]
        self._users.update(queue.places)
        return queue, added

    def leave(self, queue: EventQueue) -> list[str]:
        """A subscriber goes; its places that nobody has any more."""
        self._queues.discard(queue)
        self._users.subtract(queue.places)
        left = [path for path in queue.places if not self._users[path]]
        for path in left:
            del self._users[path]
        return left

    def report(self, paths: Collection[str]) -> None:
        """These have changed."""
        if paths:
            for queue in self._queues:
                queue.offer(paths)

    def lost(self) -> None:
        """The session is over."""
        for queue in self._queues:
            queue.lost()

    def back(self) -> None:
        """There is a new session."""
        for queue in self._queues:
            queue.back()
