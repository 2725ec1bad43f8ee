"""The controller's messages to brokers, as `SendMessage`s: LeaderAndIsr, UpdateMetadata, StopReplica.

LeaderAndIsr goes to replicas, UpdateMetadata to all, so that clients find the leaders; in this order, as a leader must
know that it leads before clients send it requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from barnabas.replication.controller.state import ClusterState
from barnabas.replication.messages.effects import (
    Effect,
    LeaderAndIsr,
    PartitionChange,
    SendMessage,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)


class Messages:
    """See the module. Changes nothing: the same state gives the same messages."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def announce(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """LeaderAndIsr to the replicas, then UpdateMetadata to all brokers."""
        if not changes:
            return []
        return [*self.lead(changes, self._state.live), *self.update(self._state.live, changes)]

    def publish(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """UpdateMetadata to all brokers, of states that the leaders know already."""
        return [*self.update(self._state.live, changes)] if changes else []

    def announce_move(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """`announce` of partitions on the move: brokers that are added may make empty logs."""
        live = self._state.live
        return [*self.lead(changes, live, adding_is_new=True), *self.update(live, changes)]

    def lead(
        self, changes: Sequence[PartitionChange], brokers: Iterable[int], *, adding_is_new: bool = False
    ) -> Iterator[SendMessage]:
        """LeaderAndIsr to these brokers. One that shuts down gets only the partitions that it leads, as it must not
        follow.
        """
        told: dict[int, list[PartitionChange]] = {broker: [] for broker in brokers}
        for change in changes:
            partition = change.partition
            for broker in partition.replicas:
                if broker not in told or (broker in self._state.shutting_down and partition.leader != broker):
                    continue
                is_added = adding_is_new and broker in partition.adding_replicas
                told[broker].append(replace(change, is_new=True) if is_added else change)
        for broker, mine in told.items():
            if mine:
                yield self.lead_one(broker, tuple(mine))

    def lead_one(self, broker: int, changes: tuple[PartitionChange, ...]) -> SendMessage:
        """LeaderAndIsr to a live broker, whether it shuts down or not."""
        state = self._state
        ids = {change.partition.leader for change in changes}
        leaders = tuple(image for image in state.image.brokers.values() if image.id in ids)
        return SendMessage(broker, LeaderAndIsr(state.broker_id, state.epoch, state.epoch_of(broker), changes, leaders))

    def update(self, brokers: Iterable[int], changes: Sequence[PartitionChange] = ()) -> Iterator[SendMessage]:
        """UpdateMetadata to these brokers: all live brokers, and the present state of these partitions."""
        state = self._state
        live = tuple(state.image.brokers.values())
        shown = tuple(self._with_offline(change) for change in changes)
        for broker in brokers:
            message = UpdateMetadata(state.broker_id, state.epoch, state.epoch_of(broker), live, shown)
            yield SendMessage(broker, message)

    def _with_offline(self, change: PartitionChange) -> PartitionChange:
        partition = change.partition
        eligible = self._state.eligible(change.key)
        offline = tuple(replica for replica in partition.replicas if replica not in eligible)
        return change if not offline else replace(change, partition=replace(partition, offline_replicas=offline))

    def stop(self, broker: int, stopped: Iterable[StoppedPartition]) -> list[Effect]:
        """Ask a broker, if it lives, to stop replicas."""
        state, partitions = self._state, tuple(stopped)
        if broker not in state.image.brokers or not partitions:
            return []
        return [SendMessage(broker, StopReplica(state.broker_id, state.epoch, state.epoch_of(broker), partitions))]
