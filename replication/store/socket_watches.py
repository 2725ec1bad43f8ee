"""What a session on the store of one machine watches, and what it has been told: so that no change is missed when the
connection is.

For every watched place it knows the names of its children, and up to which commit all changes were told. When a
connection has ended, the next one begins with the watches, whose answers say what is there now: what came, went or was
written meanwhile is reported. While there is a connection, the store tells.

An answer may be ahead of the disk by commits that a crash then takes back; that makes a report more, never one less.

Places are shared by all subscribers. One that nobody has any more is not watched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import trio

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.events import EventQueue, Subscribers
from barnabas.replication.store.socket_link import Link, Request
from barnabas.replication.store.socket_wire import Reader, Seen
from barnabas.replication.store.store import name_of, parent_of, path_of


class _Place:
    """One watched place. told: the last commit up to which its changes were told. ready: set by the first answer."""

    __slots__ = ("is_there", "names", "ready", "told")

    def __init__(self) -> None:
        self.ready = trio.Event()
        self.told = 0
        self.is_there = False
        self.names: set[str] = set()

    def take(self, path: str, zxid: int, seen: Seen) -> list[str]:
        """Take what is there now; returns the paths that have changed since what was told."""
        names = set(seen.children)
        changed = [path_of(path, name) for name in names ^ self.names]
        changed += [path_of(path, name) for name in names & self.names if seen.children[name] > self.told]
        if (seen.mzxid is not None) != self.is_there or (seen.mzxid is not None and seen.mzxid > self.told):
            changed.append(path)
        is_first = not self.ready.is_set()
        self.told, self.is_there, self.names = max(self.told, zxid), seen.mzxid is not None, names
        self.ready.set()
        return [] if is_first else changed


class Watches:
    """All watches of one session, and those who are notified. `link` is set before anything is watched."""

    link: Link

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._subscribers = Subscribers()

    @asynccontextmanager
    async def subscribed(self, places: Collection[str]) -> AsyncIterator[EventQueue]:
        """Events of `places` while inside. Waits until everything is watched. Raises StoreError."""
        queue, added = self._subscribers.enter(places)
        self._places.update((path, _Place()) for path in added)
        try:
            if added and self.link.connected:
                self.link.put(self._request(added))
            await trio.lowlevel.checkpoint()
            for path in queue.places:
                await self._places[path].ready.wait()
                self.link.check_open()
            yield queue
        finally:
            left = self._subscribers.leave(queue)
            for path in left:
                del self._places[path]
            if left and self.link.connected:
                self.link.put(Request(wire.encode_paths(wire.UNWATCH, left)))

    def _request(self, paths: Collection[str]) -> Request:
        return Request(wire.encode_paths(wire.WATCH, sorted(paths)), on_answer=self._watched)

    def _watched(self, answer: Reader) -> None:
        if answer.kind == wire.FAILED:
            raise wire.WireError(f"the store does not let us watch: {wire.decode_failed(answer)}")
        zxid, places = wire.decode_watched(answer)
        for path, seen in places.items():
            place = self._places.get(path)
            if place is not None:
                self._subscribers.report(place.take(path, zxid, seen))

    # -- the link calls ----------------------------------------------------------------------------------------------

    def again(self) -> list[Request]:
        return [self._request(self._places)] if self._places else []

    def changed(self, reader: Reader) -> None:
        zxid, paths = wire.decode_changed(reader)
        for path, is_there in paths.items():
            place, above = self._places.get(path), self._places.get(parent_of(path))
            if place is not None:
                place.is_there = is_there
                if not is_there:
                    place.names.clear()
            if above is not None and path != "/":
                (above.names.add if is_there else above.names.discard)(name_of(path))
        for place in self._places.values():
            place.told = max(place.told, zxid)
        self._subscribers.report(list(paths))

    def lost(self) -> None:
        self._subscribers.lost()

    def back(self) -> None:
        self._subscribers.back()

    def ended(self) -> None:
        """There will be no session any more: nobody waits in vain."""
        for place in self._places.values():
            place.ready.set()
