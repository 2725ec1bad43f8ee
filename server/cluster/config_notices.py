"""Notices of changed settings, /config/changes/config_change_N: read once each, and removed when they are old.

Whoever changes settings writes the settings, then a notice that names the topic or broker. Every broker reads what the
notices name, and removes those older than fifteen minutes: by then all have seen them. After a lost session only those
are looked at that came meanwhile. Source: `ZkNodeChangeNotificationListener.scala` (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from barnabas.replication import BadNode, Store, StoreError, drop_config_changes, read_config_changes
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.controller")

LIFE_MS = 15 * 60 * 1000


class ConfigNotices:
    """wall_ms(): milliseconds since the epoch. reload(kind, name): reads the settings of an entity again."""

    def __init__(
        self,
        store: Store,
        wall_ms: Callable[[], int],
        reload: Callable[[str, str], Awaitable[None]],
        unreadable: Callable[[BadNode], None],
    ) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._reload = reload
        self._unreadable = unreadable
        self._seen: dict[str, int] = {}  # name → when (wall clock)

    async def skip(self) -> None:
        """What is there now is older than what will be read."""
        self._seen.update(dict.fromkeys(await read_config_changes(self._store, (), self._unreadable), self._wall_ms()))

    async def look(self) -> None:
        """Have everything reloaded that new notices name; remove old ones."""
        now_ms = self._wall_ms()
        changes = await read_config_changes(self._store, self._seen.keys(), self._unreadable)
        for entity in dict.fromkeys(changes.values()):
            if entity is not None:
                try:
                    await self._reload(*entity)
                except StoreError:
                    raise
                except Exception as error:
                    contain(log, f"putting settings of {' '.join(entity)} in force", error)
        self._seen.update(dict.fromkeys(changes, now_ms))  # not before: the session may end in between
        old = [name for name, seen_ms in self._seen.items() if now_ms - seen_ms > LIFE_MS]
        await drop_config_changes(self._store, old)
        for name in old:
            del self._seen[name]
