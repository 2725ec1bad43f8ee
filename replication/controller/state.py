"""What the controller knows in its term of office, and the questions that all its parts ask.

`ClusterState` is the one object that the parts share: each reads it, and changes what its own events are about. `image`
follows what the store has accepted; everything else is what this term has in hand. It ends with the term: a successor
finds by reading the tree what was begun.

Who counts as live: a broker that is registered; not for new leaderships while it shuts down; not for a partition whose
replica lies on a failed log directory of it.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.replication.messages.effects import Effect, PartitionChange
from barnabas.replication.store.store import Check
from barnabas.replication.tree import paths
from barnabas.replication.values.image import BrokerImage, Image, PartitionImage, TopicImage

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Deletion:
    """A topic whose deletion has begun. waiting: replicas (partition, broker) that have not confirmed; it only shrinks.

    tokens: requests to answer when it is deleted. removing: its nodes are being removed; then `waiting` is empty.
    """

    waiting: set[tuple[int, int]]
    tokens: list[object] = field(default_factory=list)
    removing: bool = False


class BrokerChanges(NamedTuple):
    """How the set of live brokers has changed. restarted: they live as before, with a higher epoch."""

    started: tuple[int, ...]
    died: tuple[int, ...]
    restarted: tuple[int, ...]


@dataclass(slots=True, eq=False)
class ClusterState:
    """See the module. What is said of a field holds whenever no call of the controller is under way."""

    broker_id: int
    """Ours; the controller of `image`. Never changes."""
    epoch: int
    """The controller epoch of this term. Never changes."""
    guard: Check
    """The check that every write of this term starts with. Never changes."""
    image: Image
    """Live brokers as last notified; topics and states as last accepted by, or read from, the store."""

    shutting_down: set[int] = field(default_factory=set)
    """Brokers that have asked for controlled shutdown. All are live; who restarts is not among them any more."""
    offline: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """Broker → replicas on its failed log directories. All brokers are live; who restarts has none until it answers."""

    deletions: dict[str, Deletion] = field(default_factory=dict)
    """Topics whose deletion has begun. All are in `image`; none has a partition on the move; none comes back."""
    held_deletions: dict[str, list[object]] = field(default_factory=dict)
    """Topics whose deletion waits for a reassignment → tokens. All are in `image`, none is in `deletions`."""

    rooted: set[str] = field(default_factory=set)
    """Topics known to have the parent node of their states, though perhaps no state. It may lack some that have it."""

    assigning: dict[str, deque[Callable[[], list[Effect]]]] = field(default_factory=dict)
    """Topics whose node is being written → the next writes of it. A topic is here exactly as long as one commit
    of a `Work` with this topic is outstanding.
    """
    finishing: frozenset[TopicPartition] = frozenset()
    """Moves whose final state is being written: they are not finished a second time."""

    @classmethod
    def begin(cls, broker_id: int, epoch: int, epoch_version: int, image: Image) -> ClusterState:
        """The state when a term begins. epoch_version: version of /controller_epoch; image: read from the store."""
        guard = Check(paths.CONTROLLER_EPOCH, epoch_version)
        return cls(broker_id, epoch, guard, image.with_controller(broker_id, epoch))

    # -- brokers -----------------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[int]:
        """Brokers that can be spoken to."""
        return list(self.image.brokers)

    def epoch_of(self, broker: int) -> int:
        """The broker epoch of a live broker."""
        return self.image.brokers[broker].epoch

    def online(self, key: TopicPartition) -> Collection[int]:
        """Live brokers but those on which the replica of this partition is offline."""
        if not self.offline:
            return self.image.brokers
        return [broker for broker in self.image.brokers if key not in self.offline.get(broker, ())]

    def eligible(self, key: TopicPartition) -> Collection[int]:
        """Brokers that may be given the leadership of a partition."""
        online = self.online(key)
        return [broker for broker in online if broker not in self.shutting_down] if self.shutting_down else online

    @property
    def eligible_brokers(self) -> dict[int, BrokerImage]:
        """Brokers that may get new replicas."""
        return {b: image for b, image in self.image.brokers.items() if b not in self.shutting_down}

    def replace_brokers(self, brokers: Mapping[int, BrokerImage]) -> BrokerChanges | None:
        """The live brokers are now these. Returns what has changed; None if nothing has."""
        before = self.image.brokers
        if brokers == before:
            return None
        started = tuple(b for b in brokers if b not in before)
        died = tuple(b for b in before if b not in brokers)
        restarted = tuple(b for b in brokers if b in before and brokers[b].epoch > before[b].epoch)
        self.image = self.image.with_brokers(brokers)
        for broker in (*died, *restarted):
            self.shutting_down.discard(broker)
            self.offline.pop(broker, None)
        return BrokerChanges(started, died, restarted)

    # -- topics and partitions ---------------------------------------------------------------------------------------

    @property
    def deleting(self) -> Collection[str]:
        """Topics whose deletion has begun or is held. Not a copy, as it is asked for with each topic of a request."""
        return ChainMap[str, object](self.deletions, self.held_deletions)  # type: ignore[arg-type]

    def find(self, name: str, index: int) -> PartitionChange | None:
        """A partition as it is now; None if there is none, or the deletion of its topic has begun."""
        topic, partition = self.image.topics.get(name), self.image.partition(name, index)
        if topic is None or partition is None or name in self.deletions:
            return None
        return PartitionChange(name, topic.topic_id, partition)

    def known(self, keys: Iterable[TopicPartition]) -> list[PartitionChange]:
        """Those of these partitions that `find` finds."""
        return [change for key in keys if (change := self.find(*key)) is not None]

    def everything(self) -> list[PartitionChange]:
        """All partitions but those of topics whose deletion has begun."""
        return list(partitions_of(t for t in self.image.topics.values() if t.name not in self.deletions))

    def apply(self, changes: Iterable[PartitionChange]) -> None:
        """Take states into the image, of topics that are still in it."""
        changed: dict[str, list[PartitionImage]] = {}
        for change in changes:
            topic = self.image.topics.get(change.topic)
            if topic is not None and topic.topic_id == change.topic_id:
                changed.setdefault(change.topic, []).append(change.partition)
        if changed:
            self.image = self.image.with_topics(
                self.image.topics[name].with_partitions(partitions) for name, partitions in changed.items()
            )

    def remove_topics(self, names: Collection[str]) -> list[object]:
        """The nodes of these topics are gone. Returns the tokens of all who waited for their deletion."""
        tokens: list[object] = []
        for name in names:
            deletion = self.deletions.pop(name, None)
            tokens += [*(deletion.tokens if deletion else ()), *self.held_deletions.pop(name, ())]
        self.rooted.difference_update(names)
        gone = frozenset(names)
        for offline in self.offline.values():
            offline.difference_update([key for key in offline if key[0] in gone])
        self.image = self.image.with_topics((), names)
        return tokens


def partitions_of(topics: Iterable[TopicImage]) -> Iterator[PartitionChange]:
    """All partitions of these topics, as they are."""
    for topic in topics:
        for partition in topic.partitions:
            yield PartitionChange(topic.name, topic.topic_id, partition)
