"""When a partition gets another leader, and how its ISR follows the life of its brokers.

| occasion | decided by |
| --- | --- |
| brokers come, go, restart; unclean election allowed; a log directory fails | `next` |
| an administrator asks (ElectLeaders), or an old tool; leaders have become unbalanced | `elect`, `rebalance_due` |
| a broker is about to stop (ControlledShutdown) | `controlled_shutdown` |

Controlled shutdown: other ISR members lead the broker's partitions, it stops following, and leaves the ISRs; from then
on until it is gone it gets no leadership. Partitions that no other replica can lead remain; those with a single replica
are not counted (KIP-3, `doControlledShutdown`).

Balance: per broker, if more than `leader.imbalance.per.broker.percentage` of the partitions that prefer it are led by
others, those whose preferred replica can lead are given back. Source: `KafkaController.scala`,
`PartitionStateMachine.scala`, `ReplicaStateMachine.scala` (core, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.state import ClusterState, TopicPartition
from barnabas.replication.controller.writes import Writes, written
from barnabas.replication.messages.effects import Commit, Effect, PartitionChange, StoppedPartition, Work, answer
from barnabas.replication.planning import election
from barnabas.replication.store.store import Delete
from barnabas.replication.tree import paths
from barnabas.replication.values.image import NO_LEADER, PartitionImage

ElectOutcome = dict[TopicPartition, KafkaError | None]
UncleanAllowed = Callable[[Mapping[str, str]], bool]
Restarted = Callable[[TopicPartition], Collection[int]]
"""The live brokers that were away from this partition, and may have lost the end of its log."""

_UNKNOWN_BROKER_EPOCH = -1


def no_restarts(key: TopicPartition) -> Collection[int]:
    """`Restarted`, where nobody was away."""
    return ()


class Elections:
    """See the module. unclean_allowed: whether a topic with these settings may elect a leader outside its ISR.

    Of the state it changes `shutting_down` alone: states change when they have been written. unclean_count: leaders
    elected outside their ISR.
    """

    def __init__(
        self, state: ClusterState, messages: Messages, writes: Writes, unclean_allowed: UncleanAllowed
    ) -> None:
        self._state = state
        self._messages = messages
        self._writes = writes
        self._unclean_allowed = unclean_allowed
        self.unclean_count = 0

    # -- the life of brokers -----------------------------------------------------------------------------------------

    def due(self, changes: Iterable[PartitionChange], restarted: Restarted = no_restarts) -> list[PartitionChange]:
        """Those of `changes` that must become something else with the present brokers, as they must become."""
        return [state for change in changes if (state := self.next(change, restarted(change.key))) is not None]

    def write(self, states: Sequence[PartitionChange], restarted: Restarted = no_restarts) -> list[Effect]:
        """Write what `due` says. restarted: as there, as it counts for a write that must be decided once more, too."""

        def decide(change: PartitionChange) -> PartitionChange | None:
            return self.next(change, restarted(change.key))

        return self._writes.commits(states, Work(decide, self._messages.announce)) if states else []

    def next(self, change: PartitionChange, restarted: Collection[int] = ()) -> PartitionChange | None:
        """A partition's next state; None if it needs no change, or no replica can lead it.

        restarted: live brokers that were away, and may have lost the end of their logs.
        """
        if change.topic in self._state.deletions:
            return None
        before = change.partition
        eligible = self._state.eligible(change.key)
        if not before.has_state:
            first = election.initial(before, eligible)
            return None if first is None else PartitionChange(change.topic, change.topic_id, first, is_new=True)
        online = self._state.online(change.key)
        steady = [broker for broker in online if broker not in restarted] if restarted else online
        if before.leader in restarted and len(before.isr) > 1 and not any(broker in steady for broker in before.isr):
            # All in-sync replicas were away: none is better than another, and the ISR need not shrink.
            led = election.offline(before, eligible, unclean=False)
            if led is not None:
                return written(replace(change, partition=led))
        if before.leader not in steady:
            stayed = [broker for broker in eligible if broker not in restarted] if restarted else eligible
            after = election.offline(before, stayed, unclean=False) or election.lose_brokers(before, steady)
            if after.leader == NO_LEADER:  # none that stayed: now those that came back, then unclean
                topic = self._state.image.topics.get(change.topic)
                unclean = topic is not None and self._unclean_allowed(topic.config)
                after = election.offline(after, eligible, unclean=unclean) or after
        else:
            after = election.lose_brokers(before, steady)
        if after is before:
            return None
        self._note(before, after)
        return written(replace(change, partition=after))

    def _note(self, before: PartitionImage, after: PartitionImage) -> None:
        """A decision; it comes again if its write fails and has to be decided once more."""
        if after.leader >= 0 and after.leader != before.leader and after.leader not in before.isr:
            self.unclean_count += 1

    # -- on request --------------------------------------------------------------------------------------------------

    def elect(
        self, partitions: Iterable[TopicPartition], *, unclean: bool, token: object = None
    ) -> tuple[ElectOutcome, list[Effect]]:
        """Elect preferred leaders (or, `unclean`, any leader for partitions without one) as an administrator asks.

        The outcome per partition, None for an election that was held, is complete when `token` has its Answer.
        """
        outcome: ElectOutcome = {}

        def decide(change: PartitionChange) -> PartitionChange | None:
            key = change.key
            elected = self._elected(change, unclean=unclean)
            outcome[key] = elected if isinstance(elected, KafkaError) else None
            if isinstance(elected, KafkaError):
                return None
            self._note(change.partition, elected)
            return written(replace(change, partition=elected))

        states: list[PartitionChange] = []
        for key in dict.fromkeys(partitions):
            topic, partition = self._state.image.topics.get(key[0]), self._state.image.partition(*key)
            if topic is None or partition is None:
                outcome[key] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            elif key[0] in self._state.deleting:
                outcome[key] = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
            elif (state := decide(PartitionChange(key[0], topic.topic_id, partition))) is not None:
                states.append(state)
        return outcome, self._writes.start(states, Work(decide, self._messages.announce, lambda: answer(token)))

    def _elected(self, change: PartitionChange, *, unclean: bool) -> PartitionImage | KafkaError:
        partition = change.partition
        eligible = self._state.eligible(change.key)
        if unclean:
            if partition.leader in eligible:
                return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has such a leader.")
            elected = election.offline(partition, eligible, unclean=True) if partition.has_state else None
            return elected or KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        if partition.replicas[:1] == (partition.leader,):
            return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has such a leader.")
        return election.preferred(partition, eligible) or KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)

    def seen(self, partitions: Collection[TopicPartition]) -> list[Effect]:
        """An old tool wants preferred leaders (/admin/preferred_replica_election); the node goes when it is done."""
        node = paths.PREFERRED_ELECTION
        _, effects = self.elect(partitions, unclean=False)
        return [*effects, Commit((self._state.guard, Delete(node)))]

    def rebalance_due(self, imbalance_percentage: int) -> list[Effect]:
        """Give leadership back to preferred replicas of brokers that lead too little of what they should."""
        preferred: dict[int, list[PartitionChange]] = {}
        for change in self._state.everything():
            if change.topic not in self._state.held_deletions and change.partition.replicas:
                preferred.setdefault(change.partition.replicas[0], []).append(change)
        wanted: list[TopicPartition] = []
        for broker, changes in preferred.items():
            elsewhere = [c for c in changes if c.partition.has_state and c.partition.leader != broker]
            if len(elsewhere) * 100 > imbalance_percentage * len(changes):
                wanted += [
                    c.key for c in elsewhere if election.preferred(c.partition, self._state.eligible(c.key)) is not None
                ]
        return self.elect(wanted, unclean=False)[1] if wanted else []

    # -- controlled shutdown -----------------------------------------------------------------------------------------

    def controlled_shutdown(
        self, broker: int, broker_epoch: int, token: object
    ) -> tuple[list[TopicPartition], list[Effect]]:
        """A broker is about to stop. The list, complete with `token`'s Answer: the partitions that it still leads as no
        other replica can.

        broker_epoch −1: from a broker too old to send it. Raises KafkaError BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        known = self._state.image.brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
        if broker_epoch != _UNKNOWN_BROKER_EPOCH and broker_epoch < known.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker} has registered again.")
        self._state.shutting_down.add(broker)
        remaining: list[TopicPartition] = []
        handed: set[TopicPartition] = set()

        def decide(change: PartitionChange) -> PartitionChange | None:
            before = change.partition
            if broker not in self._state.shutting_down:  # it is gone by now, perhaps back
                return self.next(change)
            if before.leader == broker:
                online = self._state.online(change.key)
                after = election.controlled_shutdown(before, online, self._state.shutting_down) or before
                handed.add(change.key)
            else:
                after = election.leave_isr(before, (broker,))
            return None if after is before else written(replace(change, partition=after))

        def announce(changes: Sequence[PartitionChange]) -> list[Effect]:
            # The old leader gets the new one; as a follower it gets nothing, for it must not follow again.
            messages = [*self._messages.lead(changes, self._state.live)]
            led = tuple(c for c in changes if c.key in handed and broker in c.partition.replicas)
            if led and broker in self._state.shutting_down:
                messages.append(self._messages.lead_one(broker, led))
            return [*messages, *self._messages.update(self._state.live, changes)]

        def done() -> list[Effect]:
            remaining.extend(
                change.key
                for change in self._state.everything()
                if change.partition.leader == broker and len(change.partition.replicas) > 1
            )
            return answer(token)

        mine = [
            change
            for change in self._state.everything()
            if broker in change.partition.replicas and len(change.partition.replicas) > 1 and change.partition.has_state
        ]
        states = [state for change in mine if (state := decide(change)) is not None]
        stopped = [
            StoppedPartition(change.topic, change.partition.index, change.partition.leader_epoch, delete=False)
            for change in mine
            if change.partition.leader != broker
        ]
        return remaining, [
            *self._messages.stop(broker, stopped),
            *self._writes.start(states, Work(decide, announce, done)),
        ]
