"""Notices of changes in the store, such as /config/changes/config_change_N: read once each, and removed when old.

A change of settings or access lists is written first, then a notice that names what changed. Every broker reads what
the notices name, and removes notices older than fifteen minutes: by then all have seen them. After a lost session only
new notices are read. Source: `ZkNodeChangeNotificationListener.scala` (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from barnabas.replication import (
    BadNode,
    Changed,
    SessionBack,
    Store,
    StoreError,
    StoreFailed,
    drop_changes,
    read_changes,
)
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.controller")

LIFE_MS = 15 * 60 * 1000

T = TypeVar("T", bound=Hashable)


class ChangeNotices(Generic[T]):
    """place: where the notices are. decode(path, data): what one names; raises BadNode. wall_ms(): milliseconds since
    the epoch. reload(changed): reads again what a notice names.
    """

    def __init__(
        self,
        store: Store,
        place: str,
        decode: Callable[[str, bytes], T],
        wall_ms: Callable[[], int],
        reload: Callable[[T], Awaitable[None]],
        unreadable: Callable[[BadNode], None],
    ) -> None:
        self._store = store
        self.place = place
        self._decode = decode
        self._wall_ms = wall_ms
        self._reload = reload
        self._unreadable = unreadable
        self._seen: dict[str, int] = {}  # name → when (wall clock)

    async def skip(self) -> None:
        """Note the present notices as seen: what they name is about to be read."""
        changes = await read_changes(self._store, self.place, self._decode, (), self._unreadable)
        self._seen.update(dict.fromkeys(changes, self._wall_ms()))

    async def refresh(self) -> None:
        """Reload what new notices name; remove old ones."""
        now_ms = self._wall_ms()
        changes = await read_changes(self._store, self.place, self._decode, self._seen.keys(), self._unreadable)
        for changed in dict.fromkeys(changes.values()):
            if changed is not None:
                try:
                    await self._reload(changed)
                except StoreError:
                    raise
                except Exception as error:
                    contain(log, f"applying a change of {changed}", error)
        self._seen.update(dict.fromkeys(changes, now_ms))  # not before: the session may end in between
        old = [name for name, seen_ms in self._seen.items() if now_ms - seen_ms > LIFE_MS]
        await drop_changes(self._store, self.place, old)
        for name in old:
            del self._seen[name]


async def follow(
    store: Store, notices: Sequence[ChangeNotices[Any]], read_all: Callable[[], Awaitable[None]], what: str
) -> None:
    """Read notices as they appear, and everything again after a lost session, which may have missed some; until
    cancelled. what: what the notices are about, for the log. Raises StoreFailed.
    """

    async def refresh() -> None:
        for each in notices:
            await each.refresh()

    async def attempt(step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except StoreFailed:
            raise
        except StoreError as error:
            # The session is being re-established; the event that follows has this repeated.
            log.warning("cannot read %s: %s", what, error)

    async with store.changes([each.place for each in notices]) as events:
        await attempt(refresh)  # changes since everything was read first
        async for event in events:
            match event:
                case Changed():
                    await attempt(refresh)
                case SessionBack():
                    await attempt(read_all)
