"""High watermarks of partitions that are not on this broker, but that groups coordinated here read: their leaders are
asked, by ListOffsets.

A scrape says which it misses (`high_watermark`), and before the next one they are asked for, all of one leader at once.
So the first scrape that sees a partition has no lag for it. Leaders that do not answer within `ASK_S` are left out that
time. A broker alone has no such partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from barnabas.kproto.messages import ListOffsetsRequest
from barnabas.server.network.peers import Connect, PeerConnection, PeerError

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.config.broker import BrokerConfig

ASK_S: Final = 1.0
WANTED_MAX: Final = 10_000
_VERSION: Final = 4
_LATEST: Final = -1

Key = tuple[str, int]
"""Topic and partition."""


class ForeignEnds:
    """See the module. connect: opens connections to other brokers."""

    def __init__(
        self, connect: Connect, current_config: Callable[[], BrokerConfig], current_image: Callable[[], Image]
    ) -> None:
        self._connect = connect
        self._config = current_config
        self._image = current_image
        self._wanted: set[Key] = set()
        self._known: dict[Key, int] = {}
        self._peers: dict[int, PeerConnection] = {}

    def high_watermark(self, topic: str, index: int) -> int | None:
        """As its leader said before this scrape; None: it was not asked, or did not say."""
        if len(self._wanted) < WANTED_MAX:
            self._wanted.add((topic, index))
        return self._known.get((topic, index))

    async def refresh(self) -> None:
        """Ask for what the last scrape has missed. Never raises PeerError."""
        wanted, self._wanted = self._wanted, set()
        by_leader: dict[int, list[Key]] = {}
        image = self._image()
        for key in sorted(wanted):
            partition = image.partition(*key)
            if partition is not None and partition.leader >= 0:
                by_leader.setdefault(partition.leader, []).append(key)
        self._known = {}
        with trio.move_on_after(ASK_S):
            async with trio.open_nursery() as nursery:
                for leader, keys in by_leader.items():
                    nursery.start_soon(self._ask, leader, keys)

    async def _ask(self, leader: int, keys: list[Key]) -> None:
        config = self._config()
        broker = self._image().brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
        if endpoint is None:
            return
        peer = self._peers.get(leader)
        if peer is None:
            peer = self._peers[leader] = PeerConnection(self._connect, f"broker-{config.broker_id}-metrics", ASK_S)
        topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
        for topic, index in keys:
            place = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topics.setdefault(topic, []).append(place)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=places) for name, places in topics.items()
            ],
        )
        try:
            response = await peer.ask(endpoint, request, _VERSION)
        except PeerError:
            return  # it may be stopping; whoever needs it says so
        for topic in response.topics:
            for told in topic.partitions:
                if not told.error_code and told.offset >= 0:
                    self._known[topic.name, told.partition_index] = told.offset

    async def close(self) -> None:
        """Close the connections."""
        for peer in self._peers.values():
            await peer.close()
