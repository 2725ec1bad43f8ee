"""What all parts of the controller stand on: the picture, who can lead, writing states, telling brokers.

A write that may be refused because a leader changed the state at the same moment is decided again from what is there.
`Work` says how: it ties the commits of one purpose together, and says what follows when all of them are settled.

    states ─► commits(states, work) ─► Commit … ─► committed: picture, work.announce(changes) ┐ all settled:
                                          └► refused: picture from the store, work.decide ─► ─┘ work.done()

Who counts as live: a broker that is registered; not for new leaderships while it shuts down; not for a partition whose
replica lies on a failed log directory of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from kproto import KafkaError
from replication import paths
from replication.effects import (
    Answer,
    Commit,
    Effect,
    LeaderAndIsr,
    PartitionChange,
    StoppedPartition,
    StopReplica,
    Tell,
    UpdateMetadata,
)
from replication.image import BrokerImage, Image, PartitionImage, TopicImage
from replication.nodes import state_node
from replication.store import Check, Create, Op, Set

STATES_PER_COMMIT = 500

TopicPartition = tuple[str, int]
UncleanAllowed = Callable[[Mapping[str, str]], bool]
Decide = Callable[[PartitionChange], PartitionChange | None]
Announce = Callable[[Sequence[PartitionChange]], list[Effect]]


def nothing() -> list[Effect]:
    """No effects."""
    return []


@dataclass(slots=True, eq=False)
class Work:
    """Commits of one purpose. decide: what a partition must become, from what it is (None: it may stay).

    announce: whom to tell of written states. done: what follows when nothing is outstanding any more. again: replaces
    `decide` where a commit writes more than states; called with the number of the attempt. topic: whose assignment
    nobody else may write until then.
    """

    decide: Decide
    announce: Announce
    done: Callable[[], list[Effect]] = nothing
    again: Callable[[int], list[Effect]] | None = None
    topic: str | None = None
    outstanding: int = 0


@dataclass(slots=True)
class Deletion:
    """A topic on its way out; `elected` rebuilds it. waiting: replicas (partition, broker) that have not confirmed."""

    waiting: set[tuple[int, int]]
    tokens: list[object] = field(default_factory=list)
    removing: bool = False


class ControllerCore:
    """See the module. Arguments: see `Controller`."""

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
        self.broker_id = broker_id
        self.epoch = epoch
        self.image = image.with_controller(broker_id, epoch)
        self._guard = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._unclean_allowed = unclean_allowed
        self._rng = rng
        self._deletion_enabled = deletion_enabled
        self._deleting: dict[str, Deletion] = {}
        self._held: dict[str, list[object]] = {}  # deletions that wait for a reassignment → tokens
        self._creating: dict[str, str] = {}  # folded name → name, of topics whose commit is under way
        self._rooted: set[str] = set()  # topics without a state so far that do have the parent node of states
        self._shutting_down: set[int] = set()
        self._offline: dict[int, set[TopicPartition]] = {}  # broker → replicas on failed log directories
        self._assigning: dict[str, deque[Callable[[], list[Effect]]]] = {}  # topics with writers of assignments waiting
        self._finishing: frozenset[TopicPartition] = frozenset()  # moves whose end is being written
        self._legacy: Mapping[TopicPartition, tuple[int, ...]] = {}  # what /admin/reassign_partitions shall hold
        self._legacy_written: Mapping[TopicPartition, tuple[int, ...]] | None = None  # what is being written there
        self._unknown: frozenset[bytes] = frozenset()  # ids of topics that may have been created: no answer came

    @property
    def guard(self) -> Check:
        """The check that every write of this term starts with."""
        return self._guard

    # -- who is there ------------------------------------------------------------------------------------------------

    def _live(self) -> list[int]:
        """Brokers that can be spoken to."""
        return list(self.image.brokers)

    def _epoch_of(self, broker: int) -> int:
        return self.image.brokers[broker].epoch

    def _able(self, topic: str, index: int) -> Collection[int]:
        """Brokers whose replica of a partition is online."""
        if not self._offline:
            return self.image.brokers
        key = topic, index
        return [broker for broker in self.image.brokers if key not in self._offline.get(broker, ())]

    def _eligible(self, topic: str, index: int) -> Collection[int]:
        """Brokers that may be given the leadership of a partition."""
        able = self._able(topic, index)
        return [broker for broker in able if broker not in self._shutting_down] if self._shutting_down else able

    @property
    def eligible_brokers(self) -> dict[int, BrokerImage]:
        """Brokers that may get new replicas."""
        return {b: image for b, image in self.image.brokers.items() if b not in self._shutting_down}

    # -- the picture -------------------------------------------------------------------------------------------------

    @staticmethod
    def _partitions(topics: Iterable[TopicImage]) -> Iterator[PartitionChange]:
        for topic in topics:
            for partition in topic.partitions:
                yield PartitionChange(topic.name, topic.topic_id, partition)

    def _everything(self) -> list[PartitionChange]:
        """All partitions but those of topics being deleted."""
        return list(self._partitions(t for t in self.image.topics.values() if t.name not in self._deleting))

    def _change(self, name: str, index: int) -> PartitionChange | None:
        """A partition as it is now; None if there is none, or its topic is being deleted."""
        topic, partition = self.image.topics.get(name), self.image.partition(name, index)
        if topic is None or partition is None or name in self._deleting:
            return None
        return PartitionChange(name, topic.topic_id, partition)

    def known(self, keys: Iterable[TopicPartition]) -> list[PartitionChange]:
        """Those of these partitions that there are, as they are now."""
        return [change for key in keys if (change := self._change(*key)) is not None]

    def _apply(self, changes: Iterable[PartitionChange]) -> None:
        """Take states into the picture, of topics that are still in it."""
        changed: dict[str, list[PartitionImage]] = {}
        for change in changes:
            topic = self.image.topics.get(change.topic)
            if topic is not None and topic.topic_id == change.topic_id:
                changed.setdefault(change.topic, []).append(change.partition)
        if changed:
            self.image = self.image.with_topics(
                self.image.topics[name].with_partitions(partitions) for name, partitions in changed.items()
            )

    # -- writing -----------------------------------------------------------------------------------------------------

    def _commits(
        self, states: Sequence[PartitionChange], work: Work, *, ensure: bool = False, attempt: int = 0
    ) -> list[Effect]:
        """Write states. ensure: nodes above them may be missing."""
        effects: list[Effect] = []
        for start in range(0, len(states), STATES_PER_COMMIT):
            chunk = states[start : start + STATES_PER_COMMIT]
            ops: list[Op] = [self._guard]
            parents: dict[str, None] = {}
            for state in chunk:
                ops += self._state_ops(state, made=ensure)
                if state.is_new and (ensure or not self._has_root(state.topic)):
                    parents[paths.partitions(state.topic)] = None
                if state.is_new and ensure:
                    parents[paths.partition(state.topic, state.partition.index)] = None
            work.outstanding += 1
            effects.append(Commit(tuple(ops), states=tuple(chunk), ensure=tuple(parents), attempt=attempt, work=work))
        return effects

    def _start(self, states: Sequence[PartitionChange], work: Work) -> list[Effect]:
        """`_commits`, or at once what follows if there is nothing to write."""
        return self._commits(states, work) if states else work.done()

    def _has_root(self, topic: str) -> bool:
        known = self.image.topics.get(topic)
        return topic in self._rooted or (known is not None and any(p.has_state for p in known.partitions))

    def _state_ops(self, change: PartitionChange, *, made: bool) -> list[Op]:
        """Write one state. made: the node above it is there."""
        partition = change.partition
        data = paths.encode_state(state_node(partition, self.epoch))
        path = paths.state(change.topic, partition.index)
        if not change.is_new:
            return [Set(path, data, partition.partition_epoch - 1)]
        above: list[Op] = [] if made else [Create(paths.partition(change.topic, partition.index))]
        return [*above, Create(path, data)]

    def _in_turn(self, topic: str, write: Callable[[], list[Effect]]) -> list[Effect]:
        """Write a topic's assignment, which is one node for all partitions, after those who came before.

        `write` decides when its turn has come; its commits carry a `Work` with `topic`, or it calls `_next_in_turn`.
        """
        waiting = self._assigning.get(topic)
        if waiting is not None:
            waiting.append(write)
            return []
        self._assigning[topic] = deque()
        return write()

    def _next_in_turn(self, topic: str) -> list[Effect]:
        waiting = self._assigning.get(topic)
        if not waiting:
            self._assigning.pop(topic, None)
            return []
        return waiting.popleft()()

    # -- telling -----------------------------------------------------------------------------------------------------

    def _announce(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """Tell replicas to lead and follow, then everybody where the leaders are."""
        if not changes:
            return []
        return [*self._lead(changes, self._live()), *self._update(self._live(), changes)]

    def _publish(self, changes: Sequence[PartitionChange]) -> list[Effect]:
        """Tell everybody of states that the leaders know already."""
        return [*self._update(self._live(), changes)] if changes else []

    def _lead(
        self, changes: Sequence[PartitionChange], brokers: Iterable[int], *, adding_is_new: bool = False
    ) -> Iterator[Tell]:
        """Tell replicas to lead or follow. A broker that shuts down hears of what it leads, and follows nobody."""
        for broker in brokers:
            leads_only = broker in self._shutting_down
            mine = tuple(
                replace(change, is_new=True) if adding_is_new and broker in change.partition.adding_replicas else change
                for change in changes
                if broker in change.partition.replicas and not (leads_only and change.partition.leader != broker)
            )
            if mine:
                yield self._lead_one(broker, mine)

    def _lead_one(self, broker: int, changes: tuple[PartitionChange, ...]) -> Tell:
        ids = {change.partition.leader for change in changes}
        leaders = tuple(image for image in self.image.brokers.values() if image.id in ids)
        return Tell(broker, LeaderAndIsr(self.broker_id, self.epoch, self._epoch_of(broker), changes, leaders))

    def _update(self, brokers: Iterable[int], changes: Sequence[PartitionChange] = ()) -> Iterator[Tell]:
        everybody = tuple(self.image.brokers.values())
        shown = tuple(self._with_offline(change) for change in changes)
        for broker in brokers:
            message = UpdateMetadata(self.broker_id, self.epoch, self._epoch_of(broker), everybody, shown)
            yield Tell(broker, message)

    def _with_offline(self, change: PartitionChange) -> PartitionChange:
        partition = change.partition
        eligible = self._eligible(change.topic, partition.index)
        offline = tuple(replica for replica in partition.replicas if replica not in eligible)
        return change if not offline else replace(change, partition=replace(partition, offline_replicas=offline))

    def _stop(self, broker: int, stopped: Iterable[StoppedPartition]) -> list[Effect]:
        """Ask a broker, if it lives, to give replicas up."""
        partitions = tuple(stopped)
        if broker not in self.image.brokers or not partitions:
            return []
        return [Tell(broker, StopReplica(self.broker_id, self.epoch, self._epoch_of(broker), partitions))]


def written(change: PartitionChange) -> PartitionChange:
    """With the version that its state node will have."""
    partition = change.partition
    return replace(change, partition=replace(partition, partition_epoch=partition.partition_epoch + 1))


def answer(token: object, error: KafkaError | None = None) -> list[Effect]:
    """The answer to a request, if somebody waits for it."""
    return [] if token is None else [Answer(token, error)]
