"""The controller: a machine that takes the cluster's events, and returns commits and messages.

Pure: events in, `effects.Effect`s out; no store, socket, clock. Its image changes in two ways: brokers come and go as
notified, and everything that is also in the store changes in `committed`, after the store has accepted the write.
Every write starts with a check of /controller_epoch's version: once another controller was elected, none is accepted.

    elected ─► brokers_changed · topics_seen · deletions_seen · config_changed · create · expand · … │ Commit ──►
    committed / refused ──► SendMessage: LeaderAndIsr first, then UpdateMetadata, then StopReplica └ deletion:
    StopReplica ──► replicas_stopped ──► Remove ──► removed ──► Answer

It is composed of parts that share one `ClusterState`. A part is given those above it that it uses, so each can be made
and tried alone:

| part | file | subject |
| --- | --- | --- |
| `ClusterState` | `state.py` | what the controller knows: the image, who can lead, what is under way |
| `Messages` | `messages.py` | telling brokers |
| `Writes` | `writes.py` | writing states and topics' nodes |
| `Deletions` | `deletion.py` | deletion of topics |
| `Elections` | `election.py` | leaders and ISR as brokers come and go; elections, shutdown, balance |
| `Reassignments` | `reassignment.py` | moving partitions to other brokers |
| `ReassignmentsNode` | `reassignments_node.py` | what old tools want moved; made by `Reassignments` |
| `InSyncReplicas` | `in_sync.py` | ISR as leaders propose it, failed log directories |
| `Topics` | `topics.py` | topics and partitions that begin to exist |
| `Outcomes` | `outcomes.py` | commits that were accepted, refused, not answered |
| `Controller` | this one | the face, and the two events that concern all parts: a term begins, brokers change |

Partition states: no state → led (first live replica, epoch 0); leader dead → another of the ISR, or none (−1), or with
unclean election any live one; each change raises the leader epoch. Source: `KafkaController.scala` (core, 3.9).

Not here: finalized features, expired delegation tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType

from barnabas.kproto import ErrorCode
from barnabas.replication.controller.deletion import Deletions
from barnabas.replication.controller.election import Elections, ElectOutcome, UncleanAllowed
from barnabas.replication.controller.in_sync import AlterOutcome, FreshStates, InSyncReplicas, ProposedState
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.outcomes import Outcomes
from barnabas.replication.controller.reassignment import Reassignments, ReassignOutcome, Targets
from barnabas.replication.controller.state import ClusterState, TopicPartition
from barnabas.replication.controller.topics import Topics
from barnabas.replication.controller.writes import Writes
from barnabas.replication.messages.effects import Commit, Effect, PartitionChange
from barnabas.replication.planning.placement import Assignments
from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.store import Check, StoreError
from barnabas.replication.tree.nodes import SeenTopic
from barnabas.replication.values.image import BrokerImage, Image

NOTHING_RETURNED: Mapping[TopicPartition, Collection[int]] = MappingProxyType({})


class Controller:
    """One term of office. broker_id: ours; epoch: of this term; epoch_version: version of /controller_epoch.

    unclean_allowed: whether a topic with these settings may elect a leader outside its ISR. deletion_enabled: Kafka's
    delete.topic.enable. rng: for ids of topics that have none. `state`: what it knows, for inspection.

    A request's `token` comes back in an `Answer` when the store has it, or has refused it; requests that return an
    outcome complete it by then. Partitions are keys (topic, index).
    """

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        epoch_version: int,
        image: Image,
        *,
        unclean_allowed: UncleanAllowed,
        rng: Random,
        deletion_enabled: bool = True,
    ) -> None:
        state = self.state = ClusterState.begin(broker_id, epoch, epoch_version, image)
        messages = self._messages = Messages(state)
        writes = Writes(state)
        deletions = self._deletions = Deletions(state, messages, enabled=deletion_enabled)
        elections = self._elections = Elections(state, messages, writes, unclean_allowed)
        reassignments = self._reassignments = Reassignments(state, messages, writes)
        self._isr = InSyncReplicas(state, messages, writes, elections, reassignments)
        self._topics = Topics(state, messages, writes, elections, deletions, rng)
        self._outcomes = Outcomes(state, messages, writes, self._topics, deletions, reassignments)

    # -- what it knows -----------------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """This broker."""
        return self.state.broker_id

    @property
    def epoch(self) -> int:
        """The controller epoch of this term."""
        return self.state.epoch

    @property
    def guard(self) -> Check:
        """The check that every write of this term starts with."""
        return self.state.guard

    @property
    def image(self) -> Image:
        """The cluster as the controller knows it; replaced whole."""
        return self.state.image

    @property
    def eligible_brokers(self) -> dict[int, BrokerImage]:
        """Brokers that may get new replicas."""
        return self.state.eligible_brokers

    @property
    def deleting(self) -> Collection[str]:
        """Topics whose deletion has begun, or waits for a reassignment."""
        return self.state.deleting

    @property
    def reserved(self) -> Mapping[str, str]:
        """Names that cannot be had because they are being created, as `topics.plan_creation` wants them."""
        return self._topics.reserved

    def known(self, keys: Iterable[TopicPartition]) -> list[PartitionChange]:
        """Those of these partitions that there are, as they are now, without topics whose deletion has begun."""
        return self.state.known(keys)

    def reassigning(self, partitions: Iterable[TopicPartition] | None) -> list[PartitionChange]:
        """Those of `partitions`, or of all, that are on the move."""
        return self._reassignments.reassigning(partitions)

    # -- the term and its brokers ------------------------------------------------------------------------------------

    def elected(
        self,
        deletions: Collection[str] = (),
        restarted: Collection[int] = (),
        returned: Mapping[TopicPartition, Collection[int]] = NOTHING_RETURNED,
        *,
        reassignments: Mapping[TopicPartition, tuple[int, ...]] | None = None,
        elections: Collection[TopicPartition] | None = None,
    ) -> list[Effect]:
        """The term begins with `image` as read from the store.

        deletions: topics whose deletion was requested. restarted: live brokers that restarted and may have lost the end
        of their logs without any controller noticing: what they led gets a new leader epoch. returned: such brokers by
        partition. reassignments, elections: what old tools have asked for under /admin, None where there is no node.
        """
        effects: list[Effect] = [*self._messages.update(self.state.live)]  # brokers first: they need leaders' addresses
        effects += self._deletions.seen(deletions)
        everything = self.state.everything()

        def away(key: TopicPartition) -> Collection[int]:
            return {*restarted, *returned.get(key, ())}

        due = self._elections.due(everything, away)
        moving = {change.key for change in due}
        steady = [c for c in everything if c.partition.has_state and c.key not in moving]
        by_tool = set(reassignments or ())
        resumed = [c for c in steady if c.partition.is_reassigning and c.key not in by_tool]
        moving = {change.key for change in resumed}
        effects += self._messages.announce([c for c in steady if c.key not in moving])
        effects += self._elections.write(due, away)
        effects += self._reassignments.resume(resumed)
        effects += self._reassignments.seen(reassignments)
        return effects if elections is None else effects + self._elections.seen(elections)

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> list[Effect]:
        """The live brokers are now these. A known id with a higher epoch has restarted in between."""
        changes = self.state.replace_brokers(brokers)
        if changes is None:
            return []
        fresh = {*changes.started, *changes.restarted}
        others = [broker for broker in self.state.live if broker not in fresh]
        effects: list[Effect] = [*self._messages.update(others)]
        everything = self.state.everything()
        known = [change for change in everything if change.partition.has_state]

        def away(key: TopicPartition) -> Collection[int]:
            return changes.restarted

        due = self._elections.due(everything, away)
        moving = {change.key for change in due}
        for broker in sorted(fresh):
            effects += self._messages.update([broker], known)
            # Not what is about to change: it could lead again in its old epoch, after it lost the end of its log.
            steady = [c for c in known if broker in c.partition.replicas and c.key not in moving]
            effects += self._messages.lead(steady, [broker])
        touched = fresh.union(changes.died)
        shown = [c for c in known if not touched.isdisjoint(c.partition.replicas) and c.key not in moving]
        if shown:  # others show which replicas are offline
            effects += self._messages.update(others, shown)
        effects += self._elections.write(due, away)
        effects += self._reassignments.finish(c.key for c in known if c.partition.is_reassigning)
        return effects + self._deletions.brokers_changed(changes)

    def log_dirs_failed(self, brokers: Iterable[int]) -> list[Effect]:
        """These brokers have lost log directories: ask them about all their replicas."""
        return self._isr.log_dirs_failed(brokers)

    def leader_and_isr_answered(self, broker: int, errors: Mapping[TopicPartition, ErrorCode]) -> list[Effect]:
        """A broker's answer to LeaderAndIsr. KAFKA_STORAGE_ERROR: a replica is offline; NONE: it is not."""
        return self._isr.leader_and_isr_answered(broker, errors)

    def replicas_stopped(self, broker: int, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted these replicas of topics being deleted; without those that it could not delete."""
        return self._deletions.replicas_stopped(broker, partitions)

    # -- what the store shows ----------------------------------------------------------------------------------------

    def topics_seen(self, topics: Iterable[SeenTopic], gone: Collection[str] = ()) -> list[Effect]:
        """Nodes of topics that are new or changed, and names of topics whose node is gone."""
        return self._topics.seen(topics, gone)

    def states_seen(self, states: FreshStates) -> list[Effect]:
        """States that leaders have written by themselves, as they are in the store now."""
        return self._isr.states_seen(states)

    def config_changed(self, topic: str, config: Mapping[str, str]) -> list[Effect]:
        """A topic has other settings now. Unclean election may have become allowed."""
        return self._topics.config_changed(topic, config)

    @property
    def unclean_elections(self) -> int:
        """How many leaders outside their ISR were elected in this term."""
        return self._elections.unclean_count

    def reconsider(self) -> list[Effect]:
        """The brokers' settings have changed: unclean election may have become allowed everywhere."""
        return self._elections.write(self._elections.due(self.state.everything()))

    def deletions_seen(self, names: Collection[str]) -> list[Effect]:
        """Deletion of these topics was requested (nodes under /admin/delete_topics)."""
        return self._deletions.seen(names)

    def reassignments_seen(self, targets: Mapping[TopicPartition, tuple[int, ...]] | None) -> list[Effect]:
        """What an old tool wants moved (/admin/reassign_partitions), None without such a node."""
        return self._reassignments.seen(targets)

    def elections_seen(self, partitions: Collection[TopicPartition]) -> list[Effect]:
        """An old tool wants preferred leaders (/admin/preferred_replica_election); the node is removed."""
        return self._elections.seen(partitions)

    # -- requests ----------------------------------------------------------------------------------------------------

    def create(self, new: NewTopic, token: object) -> list[Effect]:
        """Create a topic that `topics.plan_creation` has let through."""
        return self._topics.create(new, token)

    def expand(self, topic: str, added: Assignments, token: object) -> list[Effect]:
        """Add partitions that `topics.plan_expansion` has let through."""
        return self._topics.expand(topic, added, token)

    def delete(self, topic: str, token: object) -> list[Effect]:
        """Delete a topic of the image; answered when nothing is left of it, but on dead brokers."""
        return self._deletions.delete(topic, token)

    def reassign(self, targets: Targets, token: object) -> tuple[ReassignOutcome, list[Effect]]:
        """Move partitions, or (None) call their moves off. Outcome by partition: None, or why not."""
        return self._reassignments.reassign(targets, token)

    def elect(
        self, partitions: Iterable[TopicPartition], *, unclean: bool, token: object = None
    ) -> tuple[ElectOutcome, list[Effect]]:
        """Elect preferred leaders (or, `unclean`, any leader for partitions without one) as an administrator asks.

        Outcome by partition: None for an election that was held, or why not.
        """
        return self._elections.elect(partitions, unclean=unclean, token=token)

    def rebalance_due(self, imbalance_percentage: int) -> list[Effect]:
        """Give leadership back to preferred replicas of brokers that lead too little of what they should."""
        return self._elections.rebalance_due(imbalance_percentage)

    def controlled_shutdown(
        self, broker: int, broker_epoch: int, token: object
    ) -> tuple[list[TopicPartition], list[Effect]]:
        """A broker is about to stop. Outcome: the partitions that it still leads as no other replica can.

        broker_epoch −1: from a broker too old to send it. Raises KafkaError BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        return self._elections.controlled_shutdown(broker, broker_epoch, token)

    def alter_partition(
        self, broker: int, broker_epoch: int, proposals: Mapping[TopicPartition, ProposedState], token: object
    ) -> tuple[AlterOutcome, list[Effect]]:
        """A leader's proposals. Outcome by partition: its state as it is in the store then, or why not.

        Raises KafkaError STALE_BROKER_EPOCH for a broker that is not registered (any more, or yet) with this epoch.
        """
        return self._isr.alter_partition(broker, broker_epoch, proposals, token)

    # -- outcomes of effects -----------------------------------------------------------------------------------------

    def committed(self, commits: Sequence[Commit]) -> list[Effect]:
        """The store accepted these."""
        return self._outcomes.committed(commits)

    def refused(self, commit: Commit, error: StoreError, fresh: FreshStates) -> list[Effect]:
        """The store refused this, for another reason than that our term has ended; or its answer was lost.

        error: CommitRefused, or ConnectionLost: then it may have happened. fresh: the state nodes of `commit.states` as
        they are now, with their versions; None where there is none.
        """
        return self._outcomes.refused(commit, error, fresh)

    def removed(self, topics: Collection[str]) -> list[Effect]:
        """The nodes of deleted topics are gone: the names are free. All that come together in one call: the image is
        replaced.
        """
        return self._deletions.removed(topics)
