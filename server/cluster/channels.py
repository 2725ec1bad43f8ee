"""The controller's connections to the other brokers: one queue and one task each, for one term of office.

A message is resent every 100 ms until it is answered, the broker is no longer alive (or has re-registered), or the term
has ended. One is in flight per broker, so they arrive in order, and a broker that is slow or unreachable delays no
other. Versions follow the inter-broker protocol, and the listener is the one between brokers.

Consecutive UpdateMetadata in a queue are merged: the brokers of the last one, and the last state of each partition.
Deletions are not merged, because the receiver drops topics by them.

Errors of single partitions go back to the machine; errors of a whole message are not retried
(STALE_CONTROLLER_EPOCH: there is a newer controller epoch; STALE_BROKER_EPOCH: the broker has re-registered and will
get all messages again). Source: `ControllerChannelManager.scala` (3.9).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.replication import (
    LEADER_BEING_DELETED,
    BrokerImage,
    LeaderAndIsr,
    Message,
    PartitionChange,
    StopReplica,
    UpdateMetadata,
)
from barnabas.replication.messages import wire
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.wakeup import Wakeup

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig

log = logging.getLogger("barnabas.controller")

RETRY_S = 0.1
_COMPLAIN_EVERY = 100  # attempts between two log lines about the same broker

Answered = Callable[[int, Message, ErrorCode, Mapping[tuple[str, int], ErrorCode]], None]
"""broker, message, top-level error, error codes by partition (none for UpdateMetadata)."""


class ControllerChannels:
    """See the module. nursery: where the senders run; broker_id: ours, the client id; answered: gets every answer."""

    def __init__(
        self,
        nursery: trio.Nursery,
        connect: Connect,
        broker_id: int,
        *,
        config: Callable[[], BrokerConfig],
        answered: Answered,
    ) -> None:
        self._nursery = nursery
        self._connect = connect
        self._broker_id = broker_id
        self._config = config
        self._answered = answered
        self._channels: dict[int, _Channel] = {}

    def send(self, broker: BrokerImage, message: Message) -> None:
        """Queue a message for a broker, as registered now."""
        channel = self._channels.get(broker.id)
        if channel is not None and channel.broker.epoch != broker.epoch:
            channel.close()
            channel = None
        if channel is None:
            timeout_s = self._config().get_int("controller.socket.timeout.ms") / 1000
            connection = PeerConnection(self._connect, str(self._broker_id), timeout_s)
            channel = self._channels[broker.id] = _Channel(broker, connection, self._config, self._answered)
            self._nursery.start_soon(channel.run)
        channel.broker = broker
        channel.put(message)

    def keep(self, brokers: Mapping[int, BrokerImage]) -> None:
        """These are alive: drop the queues of all others, and messages for earlier registrations."""
        for broker_id, channel in list(self._channels.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                channel.close()
                del self._channels[broker_id]
            else:
                channel.broker = broker

    def close(self) -> None:
        """The term has ended: stop sending."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    @property
    def backlog(self) -> dict[int, int]:
        """Messages queued, by broker; not counting one in flight."""
        return {broker_id: len(channel.queue) for broker_id, channel in self._channels.items()}


class _Channel:
    """One registration of a broker. broker: as registered; its endpoints may change."""

    def __init__(
        self, broker: BrokerImage, connection: PeerConnection, config: Callable[[], BrokerConfig], answered: Answered
    ) -> None:
        self.broker = broker
        self.queue: deque[Message] = deque()
        self._connection = connection
        self._config = config
        self._answered = answered
        self._wake = Wakeup()
        self._scope = trio.CancelScope()

    def put(self, message: Message) -> None:
        if self.queue and (merged := merge(self.queue[-1], message)) is not None:
            self.queue[-1] = merged
        else:
            self.queue.append(message)
        self._wake.set()

    def close(self) -> None:
        self.queue.clear()
        self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            try:
                while True:
                    while self.queue:
                        message = self.queue.popleft()
                        try:
                            await self._deliver(message)
                        except Exception as error:
                            contain(log, f"sending broker {self.broker.id} a {type(message).__name__}", error)
                    self._wake.clear()
                    await self._wake.wait()
            finally:
                await self._connection.close()

    async def _deliver(self, message: Message) -> None:
        protocol = self._config().inter_broker_protocol
        listener = self._config().inter_broker_listener
        error = ErrorCode.NONE
        codes: dict[tuple[str, int], ErrorCode] = {}
        match message:
            case LeaderAndIsr():
                version = protocol.version(ApiKey.LEADER_AND_ISR)
                response = await self._ask(wire.leader_and_isr_request(message, version, listener), version)
                codes = wire.leader_and_isr_codes(message, response)
                error = ErrorCode.of(response.error_code)
            case UpdateMetadata():
                version = protocol.version(ApiKey.UPDATE_METADATA)
                response = await self._ask(wire.update_metadata_request(message, version), version)
                error = ErrorCode.of(response.error_code)
            case StopReplica():
                version = protocol.version(ApiKey.STOP_REPLICA)
                for request in wire.stop_replica_requests(message, version):
                    response = await self._ask(request, version)
                    codes.update(wire.stop_replica_codes(response))
                    error = error or ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            log.warning("broker %d rejected %s: %s", self.broker.id, type(message).__name__, error.name)
        self._answered(self.broker.id, message, error, codes)

    async def _ask(self, request: Any, version: int) -> Any:
        """Send until there is an answer."""
        attempts = 0
        while True:
            config = self._config()
            endpoint = self.broker.endpoint(config.controller_listener)
            try:
                if endpoint is None:
                    raise PeerError(f"it has no listener {config.controller_listener}")
                response = await self._connection.ask(
                    endpoint, request, version, timeout_s=config.get_int("request.timeout.ms") / 1000
                )
            except PeerError as error:
                if attempts % _COMPLAIN_EVERY == 0:
                    log.warning("cannot connect to broker %d, retrying: %s", self.broker.id, error)
                attempts += 1
                await trio.sleep(RETRY_S)
            else:
                if attempts:
                    log.info("reconnected to broker %d", self.broker.id)
                return response


def merge(first: Message, second: Message) -> Message | None:
    """One message equivalent to both, in this order; None: they cannot be merged."""
    if not isinstance(first, UpdateMetadata) or not isinstance(second, UpdateMetadata):
        return None
    if first.controller_epoch != second.controller_epoch or first.broker_epoch != second.broker_epoch:
        return None
    if _deletes(first.partitions) or _deletes(second.partitions):
        return None
    partitions = {(change.topic, change.partition.index): change for change in first.partitions}
    partitions.update({(change.topic, change.partition.index): change for change in second.partitions})
    return replace(second, partitions=tuple(partitions.values()))


def _deletes(changes: Collection[PartitionChange]) -> bool:
    return any(change.partition.leader == LEADER_BEING_DELETED for change in changes)
