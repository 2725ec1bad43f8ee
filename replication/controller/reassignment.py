"""Moving partitions to other brokers (KIP-455).

A partition on the move has `replicas` = new and old ones, and says in the topic's node which it is `adding` and which
`removing`; so every controller can continue it.

    reassign ─► begin: topic node and state (leader epoch + 1) in one commit ─► LeaderAndIsr, new replicas are made
             ─► the leader takes them into the ISR, until all of the target are in it ─► finish:
                state: replicas = target, ISR without the others, another leader if the present one leaves
             ─► LeaderAndIsr to the target, StopReplica without and then with deletion to the others ─► topic node

A new target while one is under way, or none at all (calling off), begins again from the old replicas; what was being
added and is not wanted any more is stopped and deleted at once. It is refused where nothing in sync would be left. Who
may write a topic's node takes turns (`Writes.in_turn`). The target must have a live in-sync member before the old
replicas go, else everything stays as it is until one returns.

Old tools write /admin/reassign_partitions (`ReassignmentsNode`): the same, except that brokers need not be alive.

| request | error |
| --- | --- |
| no such partition, or its topic is being deleted, whatever is asked | UNKNOWN_TOPIC_OR_PARTITION |
| empty, repeated, negative replicas; new ones that are not live | INVALID_REPLICA_ASSIGNMENT |
| calling off what is not on the move | NO_REASSIGNMENT_IN_PROGRESS |

Source: `KafkaController.scala` (core, 3.9), `onPartitionReassignment` and around; what is looked at first is from 4.3's
`ReplicationControlManager` (3.9 looks at the replicas before it looks for the partition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.reassignments_node import ReassignmentsNode
from barnabas.replication.controller.state import ClusterState, TopicPartition, partitions_of
from barnabas.replication.controller.writes import MAX_ATTEMPTS, STATES_PER_COMMIT, Writes, written
from barnabas.replication.messages.effects import (
    Commit,
    Effect,
    PartitionChange,
    StoppedPartition,
    Work,
    answer,
    nothing,
)
from barnabas.replication.planning import election
from barnabas.replication.store.store import Op, Set
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import topic_node
from barnabas.replication.values.image import NO_LEADER, PartitionImage

Targets = Mapping[TopicPartition, Sequence[int] | None]
ReassignOutcome = dict[TopicPartition, KafkaError | None]


class Reassignments:
    """See the module. Owns `finishing` of the state, and what old tools have asked for."""

    def __init__(self, state: ClusterState, messages: Messages, writes: Writes) -> None:
        self._state = state
        self._messages = messages
        self._writes = writes
        self._node = ReassignmentsNode(state)

    # -- requests ----------------------------------------------------------------------------------------------------

    def reassign(self, targets: Targets, token: object) -> tuple[ReassignOutcome, list[Effect]]:
        """Move partitions, or (None) call their moves off; the outcome is complete when `token` has its Answer."""
        outcome: ReassignOutcome = {}
        return outcome, self._reassign(targets, outcome, lambda: answer(token), by_tool=False)

    def reassigning(self, partitions: Iterable[TopicPartition] | None) -> list[PartitionChange]:
        """Those of `partitions`, or of all, that are on the move."""
        state = self._state
        all_of_them = partitions_of(state.image.topics.values())
        found = all_of_them if partitions is None else state.known(dict.fromkeys(partitions))
        return [change for change in found if change.partition.is_reassigning]

    def seen(self, targets: Mapping[TopicPartition, tuple[int, ...]] | None) -> list[Effect]:
        """What an old tool asks for (/admin/reassign_partitions), None without such a node."""
        fresh = self._node.seen(targets)
        if not fresh:
            return []
        outcome: ReassignOutcome = {}

        def done() -> list[Effect]:
            return self._node.drop([key for key, error in outcome.items() if error is not None])

        return self._reassign(fresh, outcome, done, by_tool=True)

    def _reassign(
        self, targets: Targets, outcome: ReassignOutcome, done: Callable[[], list[Effect]], *, by_tool: bool
    ) -> list[Effect]:
        by_topic: dict[str, list[tuple[int, Sequence[int] | None]]] = {}
        for (name, index), target in targets.items():
            if self._state.find(name, index) is None:
                outcome[name, index] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            else:
                by_topic.setdefault(name, []).append((index, target))
        pieces = [
            (name, dict(some[start : start + STATES_PER_COMMIT]))
            for name, some in by_topic.items()
            for start in range(0, len(some), STATES_PER_COMMIT)
        ]
        left = len(pieces)

        def piece_done() -> list[Effect]:
            nonlocal left
            left -= 1
            return done() if left == 0 else []

        effects: list[Effect] = [] if pieces else done()
        for name, piece in pieces:
            begin = partial(self._begin, name, piece, outcome, piece_done, by_tool=by_tool)
            effects += self._writes.in_turn(name, begin)
        return effects

    # -- begin -------------------------------------------------------------------------------------------------------

    def _check_target(
        self, origin: Sequence[int], target: Sequence[int] | None, *, by_tool: bool, moving: bool
    ) -> KafkaError | None:
        if target is None:
            return None if moving else KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        fault = None
        if not target:
            fault = "Empty replica list specified in partition reassignment."
        elif len(set(target)) != len(target):
            fault = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        elif min(target) < 0:
            fault = f"Invalid broker id in replica list: {list(target)}"
        elif not by_tool and (dead := sorted(set(target) - set(origin) - self._state.eligible_brokers.keys())):
            fault = f"Replica assignment has brokers that are not alive: {dead}"
        return None if fault is None else KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)

    def _plan(
        self, change: PartitionChange, target: Sequence[int] | None, *, by_tool: bool
    ) -> PartitionImage | KafkaError:
        """The partition as it must be when the move begins."""
        now = change.partition
        if change.topic in self._state.deleting:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        error = self._check_target(now.origin_replicas, target, by_tool=by_tool, moving=now.is_reassigning)
        if error is not None:
            return error
        planned = now.reassigned_to(now.origin_replicas if target is None else target)
        if planned == now and not now.is_reassigning:
            return planned
        if not now.has_state:  # it never had a leader: its first state, which other work may be writing as well
            first = election.initial(planned, self._state.eligible(change.key))
            return first or KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "None of the replicas is alive.")
        unneeded = [replica for replica in now.replicas if replica not in planned.replicas]
        isr = tuple(replica for replica in now.isr if replica not in unneeded)
        if not isr:
            return KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica that is in sync would be left for this partition."
            )
        planned = replace(planned, isr=isr)
        if now.leader in unneeded:
            eligible = self._state.eligible(change.key)
            elected = election.reassign(planned, planned.replicas, eligible)
            return written(replace(change, partition=elected or _without_leader(planned))).partition
        return written(replace(change, partition=election.again(planned))).partition

    def _begin(
        self,
        name: str,
        targets: Mapping[int, Sequence[int] | None],
        outcome: ReassignOutcome,
        done: Callable[[], list[Effect]],
        attempt: int = 0,
        *,
        by_tool: bool,
    ) -> list[Effect]:
        """Begin moves within one topic; it is our turn."""
        planned: list[PartitionChange] = []
        unneeded: dict[TopicPartition, tuple[int, ...]] = {}
        for index, target in targets.items():
            key = name, index
            change = self._state.find(*key)
            if change is None:
                outcome[key] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
                continue
            plan = self._plan(change, target, by_tool=by_tool)
            if attempt >= MAX_ATTEMPTS:
                plan = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The store refuses the reassignment.")
            outcome[key] = plan if isinstance(plan, KafkaError) else None
            if isinstance(plan, PartitionImage) and plan != change.partition:
                planned.append(replace(change, partition=plan, is_new=not change.partition.has_state))
                unneeded[key] = tuple(r for r in change.partition.replicas if r not in plan.replicas)
        topic = self._state.image.topics.get(name)
        begun = [(name, index) for index in targets if outcome[name, index] is None]
        effects = [] if by_tool else self._node.drop(begun)
        if topic is not None and not planned and attempt > 0:
            # An earlier attempt may be in the store all the same, if its answer was lost: take it back.
            return [*effects, *self._write_assignment(name, begun, done)]
        if topic is None or not planned:
            return [*effects, *self._node.arrived(begun), *done(), *self._writes.next_in_turn(name)]
        node = topic_node(topic.with_partitions(change.partition for change in planned))
        ops: list[Op] = [self._state.guard, Set(paths.topic(name), paths.encode_topic(node))]
        for change in planned:
            ops += self._writes.state_ops(change, made=True)
        fresh = [paths.partition(name, change.partition.index) for change in planned if change.is_new]
        ensure = (paths.partitions(name), *fresh) if fresh else ()

        def announce(changes: Sequence[PartitionChange]) -> list[Effect]:
            return self._messages.announce_move(changes) + self._drop_replicas(changes, unneeded)

        work = Work(
            lambda change: None,
            announce,
            lambda: [*self._node.arrived(begun), *done()],
            lambda attempt: self._begin(name, targets, outcome, done, attempt, by_tool=by_tool),
            name,
            outstanding=1,
        )
        return [*effects, Commit(tuple(ops), states=tuple(planned), ensure=ensure, attempt=attempt, work=work)]

    # -- finish ------------------------------------------------------------------------------------------------------

    def resume(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """A new term: notify all replicas of moves under way again, under a new leader epoch, or finish them."""
        moving = [change for change in changes if change.partition.is_reassigning and change.partition.has_state]
        ready = [change for change in moving if self._finished(change) is not None]
        bump = [change for change in moving if change not in ready]

        def decide(change: PartitionChange) -> PartitionChange:
            return written(replace(change, partition=election.again(change.partition)))

        work = Work(decide, self._messages.announce_move)
        effects = self._writes.commits([decide(change) for change in bump], work)
        return effects + self.finish(change.key for change in ready)

    def finish(self, keys: Iterable[TopicPartition]) -> list[Effect]:
        """Finish those moves whose target has come into sync."""
        removed: dict[TopicPartition, tuple[int, ...]] = {}
        finished: dict[str, list[TopicPartition]] = {}

        def decide(change: PartitionChange) -> PartitionChange | None:
            removed[change.key] = change.partition.removing_replicas
            return self._finished(change)

        def announce(changes: Sequence[PartitionChange]) -> list[Effect]:
            for change in changes:
                finished.setdefault(change.topic, []).append(change.key)
            return self._messages.announce(changes) + self._drop_replicas(changes, removed)

        def done() -> list[Effect]:
            self._state.finishing = self._state.finishing.difference(tried)
            effects: list[Effect] = []
            for name, arrived in finished.items():
                effects += self._writes.in_turn(name, partial(self._write_assignment, name, arrived))
            return effects

        states: list[PartitionChange] = []
        for key in keys:
            change = None if key in self._state.finishing else self._state.find(*key)
            if change is not None and (state := decide(change)) is not None:
                states.append(state)
        tried = frozenset(state.key for state in states)
        self._state.finishing |= tried
        return self._writes.commits(states, Work(decide, announce, done)) if states else []

    def _finished(self, change: PartitionChange) -> PartitionChange | None:
        """The partition when its move has ended, with a leader of the target; None if it cannot end yet."""
        now = change.partition
        target = now.target_replicas
        if not now.is_reassigning or not set(target) <= set(now.isr):
            return None
        stays = now.leader in target and now.leader in self._state.online(change.key)
        led = election.again(now) if stays else election.reassign(now, target, self._state.eligible(change.key))
        if led is None:
            return None
        isr = tuple(replica for replica in now.isr if replica in target)
        after = replace(led, replicas=target, isr=isr, adding_replicas=(), removing_replicas=())
        return written(replace(change, partition=after))

    def _write_assignment(
        self, name: str, arrived: Sequence[TopicPartition], then: Callable[[], list[Effect]] = nothing
    ) -> list[Effect]:
        """Write a topic's assignment as the image has it; it is our turn."""
        topic = self._state.image.topics.get(name)
        if topic is None or name in self._state.deletions:
            return [*then(), *self._writes.next_in_turn(name)]
        write = Set(paths.topic(name), paths.encode_topic(topic_node(topic)))

        def done() -> list[Effect]:
            return [*self._node.arrived(arrived), *then()]

        work = Work(lambda change: None, self._messages.announce, done, topic=name, outstanding=1)
        return [Commit((self._state.guard, write), work=work)]

    def _drop_replicas(
        self, changes: Sequence[PartitionChange], leaving: Mapping[TopicPartition, Sequence[int]]
    ) -> list[Effect]:
        """Replicas that a partition has no more stop, and are then deleted."""
        by_broker: dict[int, list[PartitionChange]] = {}
        for change in changes:
            for broker in leaving.get(change.key, ()):
                by_broker.setdefault(broker, []).append(change)
        effects: list[Effect] = []
        for broker, dropped in sorted(by_broker.items()):
            for delete in (False, True):
                effects += self._messages.stop(
                    broker,
                    (StoppedPartition(c.topic, c.partition.index, c.partition.leader_epoch, delete) for c in dropped),
                )
        return effects


def _without_leader(partition: PartitionImage) -> PartitionImage:
    return election.again(replace(partition, leader=NO_LEADER))
