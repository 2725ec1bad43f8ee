"""Requests to transaction coordinators on other brokers: one AddPartitionsToTxn per broker at a time, with all
verifications that came meanwhile.

A request is cancelled when the image shows another coordinator for an id, or another leader epoch (Apache Kafka waits
for `request.timeout.ms`). A broker without version 4 of the request (before 3.5) cannot verify: its transactions go on
unverified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AddPartitionsToTxnResponse
from barnabas.replication import Endpoint, Image
from barnabas.server.coordinators.verification_asks import Ask, Asks, request_of, settle
from barnabas.server.coordinators.verification_own import Coordinator
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.runtime.containment import contain

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.registry import Partitions

log = logging.getLogger("barnabas.transactions")

OLDEST_VERSION = 4
NEWEST_VERSION = 5
_STALE_CHECK_S = 1.0
"""How often requests in flight are compared with the image. Seconds."""


class _Broker:
    """A coordinator that is being asked. asked: by transactional id, leader and leader epoch of its partition then;
    scope: of the request. asks: what came meanwhile.
    """

    __slots__ = ("asked", "asks", "broker_id", "scope")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.asked: dict[str, tuple[int, int]] = {}
        self.asks = Asks()
        self.scope = trio.CancelScope()


class OtherCoordinators:
    """See the module. `run` must be running. coordinator: knows where an id lives."""

    def __init__(
        self,
        coordinator: Coordinator,
        partitions: Partitions,
        connect: Connect,
        *,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._connect = connect
        self._config = current_config
        self._image = current_image
        self._own_id = current_config().broker_id
        self._brokers: dict[int, _Broker] = {}
        self._peers: dict[int, PeerConnection] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await trio.sleep(_STALE_CHECK_S)
                    try:
                        self._cancel_stale()
                    except Exception as error:
                        contain(log, "looking for coordinators that have moved", error)
        finally:
            self._nursery = None
            for peer in self._peers.values():
                await peer.close()

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Where a broker is reached; None: it is not in the image."""
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._config().inter_broker_listener)

    def ask(self, broker_id: int, ask: Ask) -> None:
        """Ask with the next request to this broker."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            broker.asks.add(ask)
            return
        broker = self._brokers[broker_id] = _Broker(broker_id)
        broker.asks.add(ask)
        if self._nursery is not None:
            self._nursery.start_soon(self._ask_all, broker)

    async def _ask_all(self, broker: _Broker) -> None:
        await trio.lowlevel.checkpoint()  # the rest of the round may have more
        while broker.asks:
            asks = broker.asks.take()
            broker.asked = {ask.transactional_id: self._where(ask.transactional_id) for ask in asks}
            response = None
            try:
                with trio.CancelScope() as broker.scope:
                    response = await self._ask(broker.broker_id, asks)
            except PeerError as error:
                log.warning("cannot verify transactions of %d producers: %s", len(asks), error)
            except Exception as error:
                contain(log, f"verifying transactions of {len(asks)} producers", error)
            broker.asked = {}
            settle(asks, response)
            self._partitions.write_staged()
        del self._brokers[broker.broker_id]

    async def _ask(self, broker_id: int, asks: list[Ask]) -> AddPartitionsToTxnResponse:
        """Raises PeerError."""
        peer = self._peers.get(broker_id)
        if peer is None:
            timeout_s = self._config().get_int("request.timeout.ms") / 1000
            name = f"broker-{self._own_id}-add-partitions-to-txn"
            peer = self._peers[broker_id] = PeerConnection(self._connect, name, timeout_s)
        endpoint = self.endpoint(broker_id)
        if endpoint is None:
            raise PeerError(f"broker {broker_id} is gone")
        newest = (await peer.versions(endpoint)).get(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 0))[1]
        if newest < OLDEST_VERSION:
            log.warning("broker %d cannot verify transactions; they continue unverified", broker_id)
            return AddPartitionsToTxnResponse()
        response: AddPartitionsToTxnResponse = await peer.ask(endpoint, request_of(asks), min(newest, NEWEST_VERSION))
        return response

    def _where(self, transactional_id: str) -> tuple[int, int]:
        place = self._coordinator.place(transactional_id)
        return (-1, -1) if place is None else (place.leader, place.leader_epoch)

    def _cancel_stale(self) -> None:
        """Cancel requests to brokers that no longer coordinate one of the request's ids."""
        for broker in self._brokers.values():
            if any(self._where(name) != before for name, before in broker.asked.items()):
                log.info("cancelling a request to broker %d: its ids have another coordinator", broker.broker_id)
                broker.scope.cancel()
