"""In-sync replicas as leaders report them, and log directories that fail.

`alter_partition` is the request of leaders (AlterPartition, KIP-497). Per partition, in this order:

| the leader's proposal | outcome |
| --- | --- |
| no such partition, or without state | UNKNOWN_TOPIC_OR_PARTITION |
| its leader or partition epoch is above ours: we are not the controller any more | NOT_CONTROLLER |
| its leader epoch is below ours | FENCED_LEADER_EPOCH |
| what is there already, whatever the partition epoch | the present state |
| its partition epoch is below ours | INVALID_UPDATE_VERSION |
| not from the leader; not among the replicas; several while recovering; recovering again | INVALID_REQUEST |
| replicas whose broker is dead, has restarted, or shuts down (KIP-841, KIP-903) | INELIGIBLE_REPLICA |

The partition epoch is the version of the state node, so the store refuses the write if the state was written in
between: INVALID_UPDATE_VERSION again. Only UpdateMetadata follows, as the leader learns from the answer. Callers are
checked as strictly as by newer controllers. Unlike there a leader that shuts down can have its ISR grow: partitions
that it leads alone can then be handed over. Source: `KafkaController.scala` (core, 3.9), `processAlterPartition`.

`states_seen`: leaders before 2.7 write states themselves and notify. `log_dirs_failed`: a broker has lost a directory;
it is sent LeaderAndIsr for all it has, and answers KAFKA_STORAGE_ERROR for what is lost (KIP-112).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.election import Elections
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.reassignment import Reassignments
from barnabas.replication.controller.state import ClusterState, TopicPartition
from barnabas.replication.controller.writes import Writes, written
from barnabas.replication.messages.effects import Effect, PartitionChange, Work, answer
from barnabas.replication.tree.nodes import with_state
from barnabas.replication.tree.paths import StateNode
from barnabas.replication.values.image import PartitionImage, unled


class ProposedState(NamedTuple):
    """What a leader proposes for its partition. isr: broker → its epoch as the leader knows it, −1 unknown."""

    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    recovering: bool = False


AlterOutcome = dict[TopicPartition, PartitionImage | ErrorCode]
FreshStates = Mapping[TopicPartition, tuple[StateNode, int] | None]


class InSyncReplicas:
    """See the module. Owns `offline` of the state."""

    def __init__(
        self,
        state: ClusterState,
        messages: Messages,
        writes: Writes,
        elections: Elections,
        reassignments: Reassignments,
    ) -> None:
        self._state = state
        self._messages = messages
        self._writes = writes
        self._elections = elections
        self._reassignments = reassignments

    def alter_partition(
        self, broker: int, broker_epoch: int, proposals: Mapping[TopicPartition, ProposedState], token: object
    ) -> tuple[AlterOutcome, list[Effect]]:
        """A leader's proposals. The outcome is complete when `token` has its Answer.

        Raises KafkaError STALE_BROKER_EPOCH for a broker that is not registered (any more, or yet) with this epoch.
        """
        known = self._state.image.brokers.get(broker)
        if known is None or known.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        outcome: AlterOutcome = {}

        def decide(change: PartitionChange) -> PartitionChange | None:
            key = change.key
            judged = self._judge(broker, proposals[key], change)
            if isinstance(judged, ErrorCode):
                outcome[key] = judged
                return None
            outcome[key] = judged  # the present state, or the proposed one if the store accepts it
            return None if judged is change.partition else replace(change, partition=judged)

        def done() -> list[Effect]:
            for key, partition in outcome.items():
                if isinstance(partition, PartitionImage):
                    now = self._state.image.partition(*key)
                    if now is None or now.partition_epoch < partition.partition_epoch:  # abandoned
                        outcome[key] = ErrorCode.INVALID_UPDATE_VERSION
            return answer(token)

        states: list[PartitionChange] = []
        for key in proposals:
            change = self._state.find(*key)
            if change is None or not change.partition.has_state:
                outcome[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif (state := decide(change)) is not None:
                states.append(state)
        return outcome, self._writes.start(states, Work(decide, self._messages.publish, done))

    def _judge(self, broker: int, proposed: ProposedState, change: PartitionChange) -> PartitionImage | ErrorCode:
        """The state to write, the present one itself if it is as proposed, or why not."""
        now = change.partition
        if proposed.leader_epoch > now.leader_epoch or proposed.partition_epoch > now.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if proposed.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        isr = tuple(proposed.isr)
        if broker == now.leader and (isr, proposed.recovering) == (now.isr, now.recovering):
            return now
        if proposed.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if proposed.recovering and (len(isr) > 1 or not now.recovering):
            return ErrorCode.INVALID_REQUEST
        if broker != now.leader or broker not in isr or not set(isr) <= set(now.replicas):
            return ErrorCode.INVALID_REQUEST
        online, eligible = self._state.online(change.key), self._state.eligible(change.key)
        for replica, epoch in proposed.isr.items():
            # A leader that shuts down may still take others in, who can then take over.
            if replica not in (online if replica in now.isr else eligible) or epoch not in (
                -1,
                self._state.epoch_of(replica),
            ):
                return ErrorCode.INELIGIBLE_REPLICA
        return written(replace(change, partition=replace(now, isr=isr, recovering=proposed.recovering))).partition

    def states_seen(self, states: FreshStates) -> list[Effect]:
        """States that leaders have written by themselves, as they are in the store now."""
        moved: list[PartitionChange] = []
        for key, found in states.items():
            change = self._state.find(*key)
            if change is None:
                continue
            known = change.partition
            actual = unled(known.index, known.replicas) if found is None else with_state(known, *found)
            if actual.has_state and actual.partition_epoch >= known.partition_epoch:
                moved.append(replace(change, partition=actual))
        self._state.apply(moved)
        return self._messages.publish(moved) + self._reassignments.finish([c.key for c in moved])

    def log_dirs_failed(self, brokers: Iterable[int]) -> list[Effect]:
        """These brokers have lost log directories: ask them about all their replicas."""
        known = [change for change in self._state.everything() if change.partition.has_state]
        effects: list[Effect] = []
        for broker in sorted(set(brokers) & set(self._state.image.brokers)):
            mine = [change for change in known if broker in change.partition.replicas]
            effects += self._messages.lead(mine, [broker])
            effects += self._messages.publish(mine)
        return effects

    def leader_and_isr_answered(self, broker: int, errors: Mapping[TopicPartition, ErrorCode]) -> list[Effect]:
        """A broker's answer to LeaderAndIsr. KAFKA_STORAGE_ERROR: a replica is offline; NONE: it is not."""
        if broker not in self._state.image.brokers:
            return []
        lost = {key for key, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
        before = self._state.offline.get(broker, set())
        now = (before - {key for key, code in errors.items() if code == ErrorCode.NONE}) | lost
        if now == before:
            return []
        self._state.offline[broker] = now
        if not now:
            del self._state.offline[broker]
        changes = self._state.known(sorted(now - before))
        due = self._elections.due(changes)
        moving = {change.key for change in due}
        still = [change for change in changes if change.partition.has_state and change.key not in moving]
        return self._messages.publish(still) + self._elections.write(due)
