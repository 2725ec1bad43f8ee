"""Requests of a broker to the controller on its own behalf: producer ids, and ControlledShutdown before a stop.

The controller may be this broker (a direct call), another one (a connection of its own), or unknown during an election.
Both requests may be repeated: a block of producer ids whose response is lost is never used, and a broker that leads
nothing any more gets the same answer again.

Controlled shutdown: up to `controlled.shutdown.max.retries` tries, `controlled.shutdown.retry.backoff.ms` apart, and no
longer than `HAND_OVER_S` in all; then the broker stops in any case, and the controller notices that the registration
is removed. Its version follows the inter-broker protocol, as other brokers' does; AllocateProducerIds has
one version (KIP-730), and before 3.0 brokers take their blocks from the store themselves. Source:
`KafkaServer.controlledShutdown`, `ZkProducerIdManager` (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import AllocateProducerIdsRequest, ControlledShutdownRequest
from barnabas.replication import (
    Endpoint,
    Image,
    InterBrokerProtocol,
    ProducerIdBlock,
    Store,
    StoreError,
    read_broker,
    read_controller,
    take_producer_ids,
)
from barnabas.server.network.peers import Connect, PeerConnection, PeerError

if TYPE_CHECKING:
    from barnabas.server.cluster.member import ClusterMember
    from barnabas.server.cluster.partition_requests import PartitionRequests
    from barnabas.server.config.broker import BrokerConfig

log = logging.getLogger("barnabas.broker")

ALLOCATE_S = 5.0
"""How long a block of producer ids may take, with all tries; clients wait for it."""
ALLOCATE_RETRY_S = 0.05
HAND_OVER_S = 60.0
"""The time limit of a controlled shutdown: service managers kill a process after 90 seconds."""
STORE_S = 2.0
"""How long to wait for the store's controller id before the one of our image is used."""
_NO_CONTROLLER = "no controller is known"


class ControllerClient:
    """See the module. One per broker; the connection is opened by the first request."""

    def __init__(
        self,
        member: ClusterMember,
        controller: PartitionRequests,
        store: Store,
        connect: Connect,
        *,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
    ) -> None:
        self._member = member
        self._controller = controller
        self._store = store
        self._config = current_config
        self._image = current_image
        config = current_config()
        self._timeout_s = config.get_int("controller.socket.timeout.ms") / 1000
        self._peer = PeerConnection(connect, f"broker-{config.broker_id}-to-controller", self._timeout_s)

    async def close(self) -> None:
        await self._peer.close()

    # -- producer ids ------------------------------------------------------------------------------------------------

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids of its own. Raises ProducerIdsExhausted, StoreError, PeerError."""
        config = self._config()
        if not config.is_clustered or not config.inter_broker_protocol.allocate_producer_ids:
            return await take_producer_ids(self._store, config.broker_id)
        why = _NO_CONTROLLER
        with trio.move_on_after(ALLOCATE_S):
            while True:
                try:
                    if self._member.is_active:
                        return await self._controller.allocate_producer_ids(config.broker_id, self._member.broker_epoch)
                    return await self._allocate_elsewhere()
                except (PeerError, KafkaError) as error:
                    why = str(error)
                await trio.sleep(ALLOCATE_RETRY_S)
        raise PeerError(why)

    async def _allocate_elsewhere(self) -> ProducerIdBlock:
        image, broker_id = self._image(), self._config().broker_id
        controller = image.brokers.get(image.controller_id)
        endpoint = None if controller is None else controller.endpoint(self._config().inter_broker_listener)
        if endpoint is None:
            raise PeerError(_NO_CONTROLLER)
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self._member.broker_epoch)
        answer = await self._peer.ask(endpoint, request, 0)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(answer.error_code), f"controller {image.controller_id} rejected AllocateProducerIds"
            )
        return ProducerIdBlock(
            broker_id, answer.producer_id_start, answer.producer_id_start + answer.producer_id_len - 1
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    async def hand_over(self) -> bool:
        """Have the controller move all leaderships of this broker elsewhere. False: some are left, or no answer came.

        Takes as long as the settings allow; never raises.
        """
        if not self._config().get_bool("controlled.shutdown.enable"):
            return False
        with trio.move_on_after(HAND_OVER_S):
            return await self._hand_over()
        log.warning("controlled shutdown: other brokers did not take over all partitions within %g s", HAND_OVER_S)
        return False

    async def _hand_over(self) -> bool:
        config = self._config()
        tries = config.get_int("controlled.shutdown.max.retries")
        for left in reversed(range(tries)):
            try:
                remaining = await self._controlled_shutdown()
            except (PeerError, KafkaError, StoreError) as error:
                log.warning("controlled shutdown: the controller rejected it or did not answer: %s", error)
            else:
                if not remaining:
                    return True
                shown = ", ".join(f"{topic}-{index}" for topic, index in remaining[:10])
                log.warning("controlled shutdown: no other broker can lead %d partitions: %s", len(remaining), shown)
            if left:
                await trio.sleep(config.get_int("controlled.shutdown.retry.backoff.ms") / 1000)
        return False

    async def _controlled_shutdown(self) -> list[tuple[str, int]]:
        """One attempt: returns the partitions still led here. Raises PeerError, KafkaError, StoreError."""
        broker_id, broker_epoch = self._config().broker_id, self._member.broker_epoch
        if self._member.is_active:
            with trio.move_on_after(self._timeout_s):
                return list(await self._controller.controlled_shutdown(broker_id, broker_epoch))
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        version = _controlled_shutdown_version(self._config().inter_broker_protocol)
        answer = await self._peer.ask(await self._controller_endpoint(), request, version)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code))
        return [(row.topic_name, row.partition_index) for row in answer.remaining_partitions]

    async def _controller_endpoint(self) -> Endpoint:
        """The endpoint of the controller in the store; if the store is unreachable, of the one in our image."""
        image = self._image()
        controller = image.brokers.get(image.controller_id)
        with trio.move_on_after(STORE_S):
            controller_id = await read_controller(self._store)
            controller = None if controller_id is None else await read_broker(self._store, controller_id)
        endpoint = None if controller is None else controller.endpoint(self._config().inter_broker_listener)
        if endpoint is None:
            raise PeerError(_NO_CONTROLLER)
        return endpoint


def _controlled_shutdown_version(protocol: InterBrokerProtocol) -> int:
    """3.9's `KafkaServer` asks with these versions."""
    for since, version in (("2.4-IV1", 3), ("2.2-IV0", 2)):
        if protocol.at_least(since):
            return version
    return 1
