"""Requests of brokers and administrators to the controller about single partitions; all of them wait for the store.

AlterPartition, ControlledShutdown, AllocateProducerIds come from brokers (from this one by a direct call),
reassignments and elections from administrators. The machine decides immediately; the outcome is complete when the slot
is filled, by the store or by the end of the term.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import AlterPartitionRequest, AlterPartitionResponse
from barnabas.replication import (
    Image,
    PartitionChange,
    PartitionImage,
    ProducerIdBlock,
    ProducerIdsExhausted,
    ProposedState,
    StoreError,
    take_producer_ids,
)
from barnabas.server.cluster.member import ClusterMember, Slot

log = logging.getLogger("barnabas.controller")

TopicPartition = tuple[str, int]

_TOPIC_IDS_SINCE = 2
_EPOCHS_SINCE = 3

_TopicAnswer = AlterPartitionResponse.TopicData
_PartitionAnswer = AlterPartitionResponse.PartitionData


class PartitionRequests:
    """See the module. Time limits are milliseconds of trio's clock."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member

    async def alter_partition(self, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResponse:
        """A leader's proposals of in-sync replicas. The answer has a top-level error and one for each partition."""
        try:
            return await self._alter_partition(request, version)
        except KafkaError as error:
            return AlterPartitionResponse(error_code=error.code)

    async def _alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        machine = self._member.machine()
        proposals: dict[TopicPartition, ProposedState] = {}
        answers: dict[str, AlterPartitionResponse.TopicData] = {}
        unknown = []
        for requested in request.topics:
            name = requested.topic_name
            if version >= _TOPIC_IDS_SINCE:
                topic = machine.image.topic_by_id(requested.topic_id)
                if topic is None:
                    gone = [
                        _PartitionAnswer(partition_index=p.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                        for p in requested.partitions
                    ]
                    unknown.append(_TopicAnswer(topic_id=requested.topic_id, partitions=gone))
                    continue
                name = topic.name
            answers[name] = _TopicAnswer(topic_name=name, topic_id=requested.topic_id)
            for partition in requested.partitions:
                proposals[name, partition.partition_index] = _proposal(partition, version)
        slot = Slot()
        outcome, effects = machine.alter_partition(request.broker_id, request.broker_epoch, proposals, slot)
        self._member.submit(effects, [slot])
        await self._raise_or_return(slot)
        for (name, index), found in outcome.items():
            answers[name].partitions.append(_altered(index, found, version))
        return AlterPartitionResponse(topics=[*answers.values(), *unknown])

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """A broker is about to stop. Returns the partitions that it still leads because no other broker can.

        Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """
        slot = Slot()
        remaining, effects = self._member.machine().controlled_shutdown(broker_id, broker_epoch, slot)
        self._member.submit(effects, [slot])
        await self._raise_or_return(slot)
        return remaining

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of 1000 producer ids for a broker.

        Raises KafkaError NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR.
        """
        known = self._member.machine().image.brokers.get(broker_id)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if known.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        try:
            return await take_producer_ids(self._member.store, broker_id)
        except (StoreError, ProducerIdsExhausted) as error:
            log.warning("cannot allocate producer ids for broker %d: %s", broker_id, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start reassignments of partitions, or (None) cancel them; returns the errors of those that are impossible.

        On return the store has them; the reassignments continue. Raises KafkaError NOT_CONTROLLER.
        """
        slot = Slot()
        outcome, effects = self._member.machine().reassign(targets, slot)
        self._member.submit(effects, [slot])
        await self._raise_or_return(slot)
        return dict(outcome)

    def list_reassignments(self, partitions: Iterable[TopicPartition] | None) -> list[PartitionChange]:
        """The ongoing reassignments, of these partitions or of all. Raises KafkaError NOT_CONTROLLER."""
        return self._member.machine().reassigning(partitions)

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect preferred leaders, or `unclean` any leader where there is none; None: for all partitions.

        Partitions that needed no election are left out if all were requested. Raises KafkaError NOT_CONTROLLER.
        """
        machine = self._member.machine()
        wanted = partitions
        if wanted is None:
            wanted = [(topic.name, p.index) for topic in machine.image.topics.values() for p in topic.partitions]
        slot = Slot()
        outcome, effects = machine.elect(wanted, unclean=unclean, token=slot)
        self._member.submit(effects, [slot])
        led: dict[TopicPartition, int] = {}

        def is_led(image: Image) -> bool:
            """Whether our election is in the image, by leader epoch: a later one may have changed the leader again."""
            return all(
                (partition := image.partition(*key)) is None or partition.leader_epoch >= epoch
                for key, epoch in led.items()
            )

        with trio.move_on_after(max(0, timeout_ms) / 1000) as limit:
            await self._raise_or_return(slot)
            elected = ((key, machine.image.partition(*key)) for key, error in outcome.items() if error is None)
            led.update((key, partition.leader_epoch) for key, partition in elected if partition is not None)
            await self._member.image_until(is_led)
        if limit.cancelled_caught:
            outcome.update(
                (key, KafkaError(ErrorCode.REQUEST_TIMED_OUT)) for key, error in outcome.items() if error is None
            )
        if partitions is None:
            idle = ErrorCode.ELECTION_NOT_NEEDED
            return {key: error for key, error in outcome.items() if error is None or error.code != idle}
        return outcome

    @staticmethod
    async def _raise_or_return(slot: Slot) -> None:
        error = await slot.wait()
        if error is not None:
            raise error


def _proposal(requested: AlterPartitionRequest.PartitionData, version: int) -> ProposedState:
    if version >= _EPOCHS_SINCE:
        isr = {replica.broker_id: replica.broker_epoch for replica in requested.new_isr_with_epochs}
    else:
        isr = dict.fromkeys(requested.new_isr, -1)
    return ProposedState(requested.leader_epoch, requested.partition_epoch, isr, requested.leader_recovery_state == 1)


def _altered(index: int, found: PartitionImage | ErrorCode, version: int) -> AlterPartitionResponse.PartitionData:
    if isinstance(found, ErrorCode):
        if found is ErrorCode.INELIGIBLE_REPLICA and version < _TOPIC_IDS_SINCE:
            found = ErrorCode.OPERATION_NOT_ATTEMPTED
        return _PartitionAnswer(partition_index=index, error_code=found)
    return _PartitionAnswer(
        partition_index=index,
        leader_id=found.leader,
        leader_epoch=found.leader_epoch,
        isr=list(found.isr),
        leader_recovery_state=int(found.recovering),
        partition_epoch=found.partition_epoch,
    )
