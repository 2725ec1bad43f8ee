"""Where logs end that other brokers lead: their high watermarks, which ListOffsets tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from barnabas.kproto.messages import ListOffsetsRequest
from barnabas.server.network.peers import Connect, PeerConnection, PeerError

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.config.broker import BrokerConfig

_VERSION: Final = 4
_LATEST: Final = -1

Key = tuple[str, int]
"""Topic and partition."""


class LogEnds:
    """Asks leaders, all of one at once, over connections that are kept. connect: opens them. client: who asks, as they
    see it.
    """

    def __init__(
        self,
        connect: Connect,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
        client: str,
    ) -> None:
        self._connect = connect
        self._config = current_config
        self._image = current_image
        self._client = client
        self._peers: dict[int, PeerConnection] = {}

    async def ask(self, wanted: Iterable[Key], within_s: float) -> Mapping[Key, int]:
        """The high watermarks, without those that are not known in time. Never raises PeerError."""
        by_leader: dict[int, list[Key]] = {}
        image = self._image()
        for key in sorted(wanted):
            partition = image.partition(*key)
            if partition is not None and partition.leader >= 0:
                by_leader.setdefault(partition.leader, []).append(key)
        known: dict[Key, int] = {}
        with trio.move_on_after(within_s):
            async with trio.open_nursery() as nursery:
                for leader, keys in by_leader.items():
                    nursery.start_soon(self._ask, leader, keys, known, within_s)
        return known

    async def _ask(self, leader: int, keys: list[Key], known: dict[Key, int], within_s: float) -> None:
        config = self._config()
        broker = self._image().brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
        if endpoint is None:
            return
        peer = self._peers.get(leader)
        if peer is None:
            client_id = f"broker-{config.broker_id}-{self._client}"
            peer = self._peers[leader] = PeerConnection(self._connect, client_id, within_s)
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
                    known[topic.name, told.partition_index] = told.offset

    async def close(self) -> None:
        """Close the connections."""
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.close()
