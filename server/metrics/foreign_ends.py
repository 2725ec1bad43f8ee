"""High watermarks of partitions that are not on this broker, but that groups coordinated here read: their leaders are
asked (`barnabas.server.cluster.log_ends`).

A scrape says which it misses (`high_watermark`), and before the next one they are asked for. So the first scrape that
sees a partition has no lag for it. Leaders that do not answer within `ASK_S` are left out that time. A broker alone has
no such partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.server.cluster.log_ends import Key, LogEnds
from barnabas.server.network.peers import Connect

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.config.broker import BrokerConfig

ASK_S: Final = 1.0
WANTED_MAX: Final = 10_000


class ForeignEnds:
    """See the module. connect: opens connections to other brokers."""

    def __init__(
        self, connect: Connect, current_config: Callable[[], BrokerConfig], current_image: Callable[[], Image]
    ) -> None:
        self._ends = LogEnds(connect, current_config, current_image, "metrics")
        self._wanted: set[Key] = set()
        self._known: Mapping[Key, int] = {}

    def high_watermark(self, topic: str, index: int) -> int | None:
        """As its leader said before this scrape; None: it was not asked, or did not say."""
        if len(self._wanted) < WANTED_MAX:
            self._wanted.add((topic, index))
        return self._known.get((topic, index))

    async def refresh(self) -> None:
        """Ask for what the last scrape has missed."""
        wanted, self._wanted = self._wanted, set()
        self._known = {}
        self._known = await self._ends.ask(wanted, ASK_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._ends.close()
