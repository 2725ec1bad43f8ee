"""ZooKeeper's watches, which fire once and say little, turned into the change events that a `Store` promises.

For every watched place there is a watch on the node itself, one on its list of children, and one on each child. When
one fires, it is set again *before* subscribers are notified. They read later than that, so a change after their read
fires the new watch: nothing is lost. A child that came and went between two reads of a list of children is not
reported.

A watch is set by a read, whose answer says how the node is. It is kept as two numbers (`czxid`, `mzxid`: who made it,
who wrote it last). When a connection ends all watches are gone; on the next one, in the same session or a new one, all
are set again, and what differs from the numbers kept is reported. Two cases need care:

- The event that says a node has changed and the read that sets its watch again are one report. Such a read is *quiet*:
  its answer is kept, not compared. If it is lost with the connection, nothing is kept, and the next one reports.
- A deleted child is forgotten at once and watched again only when the list of children names it, which is asked for by
  the event that follows. A node that is to come is watched only if it is a place.

Places are shared by all subscribers. Watches without subscribers stay with ZooKeeper until they fire.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType

from barnabas.replication.store.events import EventQueue, Subscribers
from barnabas.replication.store.store import StoreClosed, name_of, parent_of, path_of
from barnabas.replication.store.zk_client import GONE, failure
from barnabas.replication.store.zk_link import Link, Request

log = logging.getLogger("barnabas.zookeeper")

Stamp = tuple[int, int] | None  # czxid and mzxid; None: no such node


class _Unknown:
    """The stamp of a node whose state has not been read since it was last reported."""


_UNKNOWN = _Unknown()


class _Seen:
    """One watched node. `watch`: identity of the watch that is set, or being set; None if there is none."""

    __slots__ = ("stamp", "watch")

    def __init__(self) -> None:
        self.stamp: Stamp | _Unknown = _UNKNOWN
        self.watch: object | None = None


class _Place:
    """One watched place. `names`: its children as last read. `watch`: as in _Seen, of the list of children.

    `ready` is set when, on one connection, the node, the list and all children of the list had their watches.
    """

    __slots__ = ("names", "ready", "trouble", "watch")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.watch: object | None = None
        self.ready = trio.Event()
        self.trouble: BaseException | None = None


class _Pass:
    """Setting the watches of some places on one connection; `left` reads are not answered."""

    __slots__ = ("left", "places")

    def __init__(self, places: Iterable[_Place]) -> None:
        self.left = 0
        self.places = list(places)

    def began(self) -> None:
        self.left += 1

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            for place in self.places:
                place.ready.set()


class Watches:
    """All watches of one session, and those who are notified. Lives in trio's thread."""

    def __init__(self, link: Link, full_path: Callable[[str], str]) -> None:
        self._link = link
        self._full_path = full_path
        self._places: dict[str, _Place] = {}
        self._seen: dict[str, _Seen] = {}
        self._subscribers = Subscribers()
        self._pass: _Pass | None = None  # of the present connection; what belongs to an older one does not count

    @asynccontextmanager
    async def subscribed(self, places: Collection[str]) -> AsyncIterator[EventQueue]:
        """Events of `places` while inside. Waits until everything is watched. Raises StoreError."""
        queue, added = self._subscribers.enter(places)
        self._places.update((path, _Place()) for path in added)
        try:
            if added and self._link.connected:
                self._set(added, quiet=True)
            for path in queue.places:
                await self._places[path].ready.wait()
                trouble = self._places[path].trouble
                if trouble is not None:
                    raise failure(path, trouble)
            yield queue
        finally:
            for path in self._subscribers.leave(queue):
                place = self._places.pop(path)
                for name in [path, *(path_of(path, name) for name in place.names)]:
                    if not self._is_wanted(name):
                        self._seen.pop(name, None)

    def _is_wanted(self, path: str) -> bool:
        if path in self._places:
            return True
        above = self._places.get(parent_of(path))
        return above is not None and path != "/" and name_of(path) in above.names

    # -- the session -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """There is a connection, and no watch on it. Set all of them, ahead of everything that waits."""
        for seen in self._seen.values():
            seen.watch = None
        for place in self._places.values():
            place.watch = None
        new = [path for path in self._places if not self._is_watched(path) and not self._is_watched(parent_of(path))]
        self._set(new, quiet=True)
        self._set([path for path in self._places if path not in new], quiet=False)

    def _is_watched(self, path: str) -> bool:
        """Whether the place is subscribed to, and its watches are set."""
        place = self._places.get(path)
        return place is not None and place.ready.is_set()

    def session_lost(self) -> None:
        self._subscribers.lost()

    def session_back(self) -> None:
        self._subscribers.back()

    # -- setting watches ---------------------------------------------------------------------------------------------

    def _set(self, paths: Iterable[str], *, quiet: bool) -> None:
        paths = list(paths)
        if not paths:
            return
        this = _Pass(self._places[path] for path in paths)
        requests = []
        for path in paths:
            requests.append(self._node_request(path, quiet=quiet, within=this))
            requests.append(self._children_request(path, quiet=quiet, within=this))
        self._link.put(requests, in_front=True)

    def _node_request(self, path: str, *, quiet: bool, within: _Pass | None = None) -> Request:
        seen = self._seen.setdefault(path, _Seen())
        quiet = quiet and seen.watch is None  # an event of a watch that is replaced is not heard: compare instead
        watch = seen.watch = object()
        full = self._full_path(path)
        if within:
            within.began()
        return Request(
            lambda client: client.exists_async(full, watch=partial(self._fired, self._node_fired, path, watch)),
            partial(self._node_answered, path, watch, quiet, within),
        )

    def _node_answered(
        self, path: str, watch: object, quiet: bool, within: _Pass | None, stat: Any, error: BaseException | None
    ) -> None:
        seen = self._seen.get(path)
        if seen is not None and seen.watch is watch:
            if error is None:
                stamp = None if stat is None else (stat.czxid, stat.mzxid)
                is_news, seen.stamp = not quiet and stamp != seen.stamp, stamp
                place = self._places.get(path)
                if place is not None and place.watch is None and stamp is not None:  # it came back unseen
                    self._link.put([self._children_request(path, quiet=False)], in_front=True)
                if is_news:
                    self._subscribers.report([path])
            else:
                seen.watch, seen.stamp = None, _UNKNOWN
                self._failed(path, error, lambda: self._set_node_again(path))
        if within and not isinstance(error, GONE):
            within.ended()

    def _set_node_again(self, path: str) -> None:
        seen = self._seen.get(path)
        if seen is not None and seen.watch is None and self._link.connected and self._is_wanted(path):
            self._link.put([self._node_request(path, quiet=False)], in_front=True)

    def _children_request(self, path: str, *, quiet: bool, within: _Pass | None = None) -> Request:
        place = self._places[path]
        watch = place.watch = object()
        full = self._full_path(path)
        if within:
            within.began()
        return Request(
            lambda client: client.get_children_async(
                full, watch=partial(self._fired, self._children_fired, path, watch)
            ),
            partial(self._children_answered, path, watch, quiet, within),
        )

    def _children_answered(
        self, path: str, watch: object, quiet: bool, within: _Pass | None, names: Any, error: BaseException | None
    ) -> None:
        place = self._places.get(path)
        if place is not None and place.watch is watch:
            if isinstance(error, NoNodeError):
                place.watch = None  # nothing to watch; the node's own watch fires when it is created
                names, error = [], None
            if error is None:
                self._compare(path, place, set(names), quiet, within)
            else:
                place.watch = None
                if not isinstance(error, (*GONE, StoreClosed)) and not place.ready.is_set():
                    place.trouble = error
                    place.ready.set()
                self._failed(path, error, lambda: self._set_children_again(path))
        if within and not isinstance(error, GONE):
            within.ended()

    def _set_children_again(self, path: str) -> None:
        place = self._places.get(path)
        if place is not None and place.watch is None and self._link.connected:
            self._link.put([self._children_request(path, quiet=False)], in_front=True)

    def _compare(self, path: str, place: _Place, names: set[str], quiet: bool, within: _Pass | None) -> None:
        """Take over a list of children: watch those that are not watched, forget those that are gone."""
        before, place.names = place.names, names
        news = [path_of(path, name) for name in names ^ before]
        requests = []
        for name in names:
            child = path_of(path, name)
            seen = self._seen.get(child)
            if seen is None or seen.watch is None:
                # a known child without a watch lost it with its connection: compare. A new one is reported here
                requests.append(self._node_request(child, quiet=quiet or name not in before, within=within))
        for name in before - names:
            if not self._is_wanted(path_of(path, name)):
                self._seen.pop(path_of(path, name), None)
        self._link.put(requests, in_front=True)
        if not quiet:
            self._subscribers.report(news)

    def _failed(self, path: str, error: BaseException, again: Callable[[], None]) -> None:
        """A watch could not be set. With the connection gone, all of them will be; otherwise try in a while."""
        if isinstance(error, (*GONE, StoreClosed)):
            return
        log.error("%s cannot be watched: %s", path, failure(path, error))
        self._link.later(lambda: self._link.post(again))

    # -- events ------------------------------------------------------------------------------------------------------

    def _fired(self, handle: Callable[[str, object, str], None], path: str, watch: object, event: Any) -> None:
        """In kazoo's thread."""
        if event.type != EventType.NONE:  # NONE: the connection has ended
            self._link.post(handle, path, watch, event.type)

    def _node_fired(self, path: str, watch: object, kind: str) -> None:
        seen = self._seen.get(path)
        if seen is None or seen.watch is not watch:
            return
        seen.watch, seen.stamp = None, _UNKNOWN
        place = self._places.get(path)
        requests = []
        if kind == EventType.DELETED:
            above = self._places.get(parent_of(path))
            if above is not None:
                above.names.discard(name_of(path))
        if self._is_wanted(path):
            requests.append(self._node_request(path, quiet=True))
        else:
            del self._seen[path]
        if place is not None and place.watch is None and kind != EventType.DELETED:
            requests.append(self._children_request(path, quiet=False))
        self._link.put(requests, in_front=True)
        self._subscribers.report([path])

    def _children_fired(self, path: str, watch: object, kind: str) -> None:
        place = self._places.get(path)
        if place is not None and place.watch is watch:
            place.watch = None
            self._link.put([self._children_request(path, quiet=False)], in_front=True)
