"""Proposals of this broker's partitions for another ISR, sent to the controller; and the search for lagging replicas.

Partitions propose (`barnabas.replication.replica.leader`); `submit` queues a proposal and `run` sends all queued ones,
one request at a time: to the controller's inter-broker endpoint, or by a direct call where this broker is the
controller. The answers go back to the partitions. Without an answer (no controller, connection lost, a top-level error)
a proposal is resent after `RETRY_S`, indefinitely: until a new leader epoch the partition waits, in a state that
commits nothing too early. A proposal that the partition has dropped meanwhile is not resent.

AlterPartition (key 56, KIP-497) exists from inter-broker protocol 2.7-IV2 on. Its version is negotiated: the newest
that both support, up to 3; 0 and 1 name topics, 2 and 3 need topic ids (KIP-841), 3 has broker epochs, which matter in
KRaft only and are -1 here. Before 2.7-IV2 the leader writes the partition's state itself, if it is unchanged, and
creates a notification node: when there was no change for `LINGER_S`, or no notification for `DELAY_MAX_S`.

Replicas are checked for lag every half `replica.lag.time.max.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode
from barnabas.kproto.messages import AlterPartitionRequest
from barnabas.replication import BadNode, Image, Proposal, Refusal, Store, StoreError, notify_isr_changes, write_isr
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain, serve
from barnabas.server.runtime.wakeup import Wakeup

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.registry import Partitions

log = logging.getLogger("barnabas.isr")

RETRY_S = 0.05
NEWEST_VERSION = 3
NEWEST_WITH_NAMES = 1
LINGER_S = 5.0
DELAY_MAX_S = 60.0
NOTIFICATION_CHECK_S = 2.5
_LOOKS_AT_ONCE = 200  # partitions between two checkpoints

Batch = dict[Partition, Proposal]
Outcome = ErrorCode | tuple[tuple[int, ...], int, int]
"""An error, or the state as it is now: ISR, leader epoch, partition epoch."""


class Member(Protocol):
    """This broker in its cluster (`server.cluster.member.ClusterMember`). is_active: it is the controller."""

    @property
    def is_active(self) -> bool: ...

    @property
    def broker_epoch(self) -> int: ...

    async def image_until(self, ready: Callable[[Image], bool]) -> None: ...


class OwnController(Protocol):
    """Requests to the controller in this broker (`server.cluster.partition_requests.PartitionRequests`)."""

    async def alter_partition(self, request: Any, version: int) -> Any: ...


class _Unanswered(Exception):
    """The whole request failed, and is to be resent."""


class IsrManager:
    """See the module. One per broker of a cluster; `run` must be running for anything to be sent."""

    def __init__(
        self,
        partitions: Partitions,
        member: Member,
        controller: OwnController,
        store: Store,
        connect: Connect,
        *,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
    ) -> None:
        self._partitions = partitions
        self._member = member
        self._controller = controller
        self._store = store
        self._config = current_config
        self._image = current_image
        config = current_config()
        self._timeout_s = config.get_int("controller.socket.timeout.ms") / 1000
        self._peer = PeerConnection(connect, f"broker-{config.broker_id}-alter-partition", self._timeout_s)
        self._wanted: Batch = {}
        self._mail = Wakeup()
        self._asking: trio.CancelScope | None = None
        self._trouble = ""
        self._to_notify: dict[tuple[str, int], None] = {}
        self._changed_at = self._notified_at = 0.0

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Queue `proposal` for the controller, instead of an older one of this partition that was not sent yet."""
        if proposal.removed:
            _tell_who_lags(partition, proposal)
        self._wanted[partition] = proposal
        self._mail.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        self._changed_at = self._notified_at = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, log, "checking for lagging replicas", self._find_laggards)
                nursery.start_soon(serve, log, "following the controller", self._leave_old_controllers)
                if not self._config().inter_broker_protocol.alter_partition:
                    nursery.start_soon(serve, log, "proposing ISRs to the controller", self._notify)
                while True:
                    await self._mail.wait()
                    while self._wanted:
                        if not await self._send_all():
                            await trio.sleep(RETRY_S)
        finally:
            await self._peer.close()

    async def _find_laggards(self) -> None:
        while True:
            await trio.sleep(max(self._config().get_int("replica.lag.time.max.ms") / 2000, 0.001))
            for number, partition in enumerate(self._partitions, 1):
                try:
                    partition.shrink_isr(trio.current_time())
                except Exception as error:
                    contain(log, f"checking for lagging replicas of {partition}", error)
                if number % _LOOKS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()

    async def _leave_old_controllers(self) -> None:
        """Cancel requests to a broker that is no longer controller, perhaps because it is partitioned from the rest."""
        while True:
            controller_id = self._image().controller_id
            await self._member.image_until(lambda image, before=controller_id: image.controller_id != before)  # type: ignore[misc]
            if self._asking is not None:
                self._asking.cancel()

    # -- one round ---------------------------------------------------------------------------------------------------

    async def _send_all(self) -> bool:
        """Send all queued proposals. False if some must be resent, after a pause."""
        wanted, self._wanted = self._wanted, {}
        batch = {partition: proposal for partition, proposal in wanted.items() if _is_pending(partition, proposal)}
        if not batch:
            await trio.lowlevel.checkpoint()
            return True
        try:
            if self._config().inter_broker_protocol.alter_partition:
                outcomes = await self._ask(batch)
            else:
                outcomes = await self._write(batch)
        except (_Unanswered, PeerError, StoreError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("deferring %d ISR changes: %s", len(batch), error)
            self._again(batch.items())
            return False
        except Exception as error:
            if repr(error) != self._trouble:
                self._trouble = repr(error)
                contain(log, f"proposing {len(batch)} ISR changes", error)
            self._again(batch.items())
            return False
        self._trouble = ""
        again = []
        for partition, proposal in batch.items():
            outcome = outcomes.get(partition)
            try:
                if outcome is None or (isinstance(outcome, ErrorCode) and self._refused(partition, proposal, outcome)):
                    again.append((partition, proposal))
                elif not isinstance(outcome, ErrorCode):
                    isr, leader_epoch, partition_epoch = outcome
                    partition.isr_accepted(proposal, isr, leader_epoch, partition_epoch)
            except Exception as error:
                contain(log, f"applying the ISR of {partition}", error)
                again.append((partition, proposal))  # the next answer will show the actual state
        self._again(again)
        return not again

    def _again(self, items: Iterable[tuple[Partition, Proposal]]) -> None:
        for partition, proposal in items:
            self._wanted.setdefault(partition, proposal)

    @staticmethod
    def _refused(partition: Partition, proposal: Proposal, code: ErrorCode) -> bool:
        """Give the partition a refusal; True if the same proposal is to be resent."""
        what = partition.isr_refused(proposal, code)
        if what is not Refusal.STALE:
            log.info(
                "%s-%d: the controller rejected ISR %s with %s: %s",
                partition.topic,
                partition.index,
                proposal.isr,
                code.name,
                what.name.lower(),
            )
        return what is Refusal.RETRY

    # -- AlterPartition ----------------------------------------------------------------------------------------------

    async def _ask(self, batch: Batch) -> dict[Partition, Outcome]:
        with_ids = self._config().inter_broker_protocol.topic_ids and all(
            partition.topic_id != ZERO_UUID for partition in batch
        )
        newest = NEWEST_VERSION if with_ids else NEWEST_WITH_NAMES
        if self._member.is_active:
            version = newest
            response = None
            with trio.move_on_after(self._timeout_s):
                response = await self._controller.alter_partition(self._request(batch, version), version)
            if response is None:
                raise _Unanswered("the controller, this broker, did not answer in time")
        else:
            image = self._image()
            controller = image.brokers.get(image.controller_id)
            endpoint = None if controller is None else controller.endpoint(self._config().inter_broker_listener)
            if endpoint is None or image.controller_id == self._partitions.broker_id:
                raise _Unanswered("no controller is known")
            response = None
            with trio.CancelScope() as self._asking:
                served = (await self._peer.versions(endpoint)).get(ApiKey.ALTER_PARTITION)
                if served is None or served[0] > newest:
                    raise _Unanswered(f"broker {image.controller_id} does not serve AlterPartition up to {newest}")
                version = min(served[1], newest)
                response = await self._peer.ask(endpoint, self._request(batch, version), version)
            self._asking = None
            if response is None:
                raise _Unanswered(f"broker {image.controller_id} is no longer the controller")
        if response.error_code != ErrorCode.NONE:
            raise _Unanswered(f"the controller answered {_name(response.error_code)}")
        return _outcomes(batch, response, version)

    def _request(self, batch: Batch, version: int) -> AlterPartitionRequest:
        topics: dict[str, Any] = {}
        for partition, proposal in batch.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = AlterPartitionRequest.TopicData(
                    topic_name=partition.topic, topic_id=partition.topic_id, partitions=[]
                )
            proposed = AlterPartitionRequest.PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
            )
            if version >= 3:
                proposed.new_isr_with_epochs = [
                    AlterPartitionRequest.BrokerState(broker_id=each) for each in proposal.isr
                ]
            else:
                proposed.new_isr = list(proposal.isr)
            topic.partitions.append(proposed)
        return AlterPartitionRequest(
            broker_id=self._partitions.broker_id, broker_epoch=self._member.broker_epoch, topics=list(topics.values())
        )

    # -- before AlterPartition ---------------------------------------------------------------------------------------

    async def _write(self, batch: Batch) -> dict[Partition, Outcome]:
        outcomes: dict[Partition, Outcome] = {}
        for partition, proposal in batch.items():
            topic, index = partition.topic, partition.index
            try:
                written = await write_isr(self._store, self._partitions.broker_id, topic, index, proposal)
            except StoreError:
                if not outcomes:
                    raise
                break  # the rest is resent
            except BadNode as error:
                log.error("%s", error)
                written = ErrorCode.INVALID_REQUEST
            if isinstance(written, ErrorCode):
                outcomes[partition] = written
            else:
                outcomes[partition] = proposal.isr, proposal.leader_epoch, written
                self._to_notify[topic, index] = None
                self._changed_at = trio.current_time()
        return outcomes

    async def _notify(self) -> None:
        while True:
            await trio.sleep(NOTIFICATION_CHECK_S)
            now = trio.current_time()
            calm = self._changed_at + LINGER_S < now
            if not self._to_notify or not (calm or self._notified_at + DELAY_MAX_S < now):
                continue
            changed, self._to_notify = self._to_notify, {}
            try:
                await notify_isr_changes(self._store, changed)
                self._notified_at = now
            except StoreError as error:
                log.warning("cannot notify the controller of ISR changes, retrying: %s", error)
                self._to_notify = {**changed, **self._to_notify}


def _tell_who_lags(partition: Partition, proposal: Proposal) -> None:
    leader = partition.leader
    if leader is not None:
        log.info(
            "%s-%d: proposing to shrink the ISR from %s to %s; the log ends at %d, high watermark %d; lagging: %s",
            partition.topic,
            partition.index,
            leader.isr,
            proposal.isr,
            partition.log_end_offset,
            partition.high_watermark,
            "; ".join(str(leader.followers.get(each, each)) for each in proposal.removed),
        )


def _is_pending(partition: Partition, proposal: Proposal) -> bool:
    leader = partition.leader
    return leader is not None and leader.pending is proposal


def _outcomes(batch: Batch, response: Any, version: int) -> dict[Partition, Outcome]:
    by_key: Mapping[tuple[object, int], Partition] = {
        (partition.topic_id if version >= 2 else partition.topic, partition.index): partition for partition in batch
    }
    outcomes: dict[Partition, Outcome] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = by_key.get((topic.topic_id if version >= 2 else topic.topic_name, answer.partition_index))
            if partition is None:
                continue
            if answer.error_code != ErrorCode.NONE:
                outcomes[partition] = ErrorCode.of(answer.error_code)
            else:
                outcomes[partition] = tuple(answer.isr), answer.leader_epoch, answer.partition_epoch
    return outcomes


def _name(code: int) -> str:
    known = ErrorCode.of(code)
    return known.name if known == code else f"error {code}"
