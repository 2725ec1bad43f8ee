"""In-sync replicas as leaders report them, and log directories that fail.

`alter_partition` is the request of leaders (AlterPartition, KIP-497). Per partition, in this order:

| the leader's wish | code |
| --- | --- |
| no such partition, or without state | 3 UNKNOWN_TOPIC_OR_PARTITION |
| its leader or partition epoch is above ours: we are not the controller any more | 41 NOT_CONTROLLER |
| its leader epoch is below ours | 74 FENCED_LEADER_EPOCH |
| what is there already, whatever the partition epoch | the present state |
| its partition epoch is below ours | 95 INVALID_UPDATE_VERSION |
| not from the leader; not among the replicas; several while recovering; recovering again | 42 INVALID_REQUEST |
| replicas whose broker is dead, has restarted, or shuts down (KIP-841, KIP-903) | 107 INELIGIBLE_REPLICA |

The partition epoch is the version of the state node, so a state that somebody else wrote in between refuses the write:
95 again. Only UpdateMetadata follows, for the leader learns from the answer. Source: `KafkaController.scala` (core,
3.9), `processAlterPartition`; who may ask is checked as strictly as by newer controllers. Unlike there a leader that
shuts down can have its ISR grow: what it leads alone can then be handed over.

`states_seen`: leaders before 2.7 write states themselves and notify. `log_dirs_failed`: a broker has lost a directory;
it is sent LeaderAndIsr for all it has, and answers KAFKA_STORAGE_ERROR for what is lost (KIP-112).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kproto import ErrorCode, KafkaError
from replication.controller_core import TopicPartition, Work, answer, written
from replication.controller_reassignment import Reassignments
from replication.effects import Effect, PartitionChange
from replication.image import PartitionImage, unled
from replication.nodes import with_state
from replication.paths import StateNode


@dataclass(frozen=True, slots=True)
class IsrWish:
    """What a leader wants its partition's state to be. isr: broker → its epoch as the leader knows it, −1 unknown."""

    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
    recovering: bool = False


AlterOutcome = dict[TopicPartition, PartitionImage | ErrorCode]
FreshStates = Mapping[TopicPartition, tuple[StateNode, int] | None]


class InSyncReplicas(Reassignments):
    """See the module."""

    def alter_partition(
        self, broker: int, broker_epoch: int, wishes: Mapping[TopicPartition, IsrWish], token: object
    ) -> tuple[AlterOutcome, list[Effect]]:
        """A leader's wishes. The outcome is complete when `token` has its Answer.

        Raises KafkaError STALE_BROKER_EPOCH for a broker that is not registered (any more, or yet) with this epoch.
        """
        known = self.image.brokers.get(broker)
        if known is None or known.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        outcome: AlterOutcome = {}

        def decide(change: PartitionChange) -> PartitionChange | None:
            key = change.topic, change.partition.index
            judged = self._judge(broker, wishes[key], change)
            if isinstance(judged, ErrorCode):
                outcome[key] = judged
                return None
            outcome[key] = judged  # the present state, or the wanted one if the store takes it
            return None if judged is change.partition else replace(change, partition=judged)

        def done() -> list[Effect]:
            for key, partition in outcome.items():
                if isinstance(partition, PartitionImage):
                    now = self.image.partition(*key)
                    if now is None or now.partition_epoch < partition.partition_epoch:  # given up
                        outcome[key] = ErrorCode.INVALID_UPDATE_VERSION
            return answer(token)

        states: list[PartitionChange] = []
        for key in wishes:
            change = self._change(*key)
            if change is None or not change.partition.has_state:
                outcome[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif (state := decide(change)) is not None:
                states.append(state)
        return outcome, self._start(states, Work(decide, self._publish, done))

    def _judge(self, broker: int, wish: IsrWish, change: PartitionChange) -> PartitionImage | ErrorCode:
        """The state to write, the present one itself if it is as wanted, or why not."""
        now = change.partition
        if wish.leader_epoch > now.leader_epoch or wish.partition_epoch > now.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if wish.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        isr = tuple(wish.isr)
        if broker == now.leader and (isr, wish.recovering) == (now.isr, now.recovering):
            return now
        if wish.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if wish.recovering and (len(isr) > 1 or not now.recovering):
            return ErrorCode.INVALID_REQUEST
        if broker != now.leader or broker not in isr or not set(isr) <= set(now.replicas):
            return ErrorCode.INVALID_REQUEST
        able, eligible = self._able(change.topic, now.index), self._eligible(change.topic, now.index)
        for replica, epoch in wish.isr.items():
            # A leader that shuts down may still take others in, who can then take over.
            if replica not in (able if replica in now.isr else eligible) or epoch not in (-1, self._epoch_of(replica)):
                return ErrorCode.INELIGIBLE_REPLICA
        return written(replace(change, partition=replace(now, isr=isr, recovering=wish.recovering))).partition

    def states_seen(self, states: FreshStates) -> list[Effect]:
        """States that leaders have written by themselves, as they are in the store now."""
        moved: list[PartitionChange] = []
        for key, found in states.items():
            change = self._change(*key)
            if change is None:
                continue
            known = change.partition
            actual = unled(known.index, known.replicas) if found is None else with_state(known, *found)
            if actual.has_state and actual.partition_epoch >= known.partition_epoch:
                moved.append(replace(change, partition=actual))
        self._apply(moved)
        return self._publish(moved) + self._finish([(c.topic, c.partition.index) for c in moved])

    def log_dirs_failed(self, brokers: Iterable[int]) -> list[Effect]:
        """These brokers have lost log directories: ask them about all their replicas."""
        known = [change for change in self._everything() if change.partition.has_state]
        effects: list[Effect] = []
        for broker in sorted(set(brokers) & set(self.image.brokers)):
            mine = [change for change in known if broker in change.partition.replicas]
            effects += self._lead(mine, [broker])
            effects += self._publish(mine)
        return effects

    def leader_and_isr_answered(self, broker: int, errors: Mapping[TopicPartition, ErrorCode]) -> list[Effect]:
        """A broker's answer to LeaderAndIsr. KAFKA_STORAGE_ERROR: a replica is offline; NONE: it is not."""
        if broker not in self.image.brokers:
            return []
        lost = {key for key, code in errors.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
        before = self._offline.get(broker, set())
        now = (before - {key for key, code in errors.items() if code == ErrorCode.NONE}) | lost
        if now == before:
            return []
        self._offline[broker] = now
        if not now:
            del self._offline[broker]
        changes = [change for key in sorted(now - before) if (change := self._change(*key)) is not None]
        due = self._due(changes)
        moving = {(change.topic, change.partition.index) for change in due}
        still = [c for c in changes if c.partition.has_state and (c.topic, c.partition.index) not in moving]
        return self._publish(still) + self._decided(due)
