"""What the controller wants done, as values: writes to the store, and messages to brokers.

A driver carries them out in the order given. Several `Commit`s that stand together are independent of each other and
may run at the same time; their outcome goes back into the machine (`committed`, `refused`). `SendMessage`s are carried
by the inter-broker connections, or by a direct call where the broker is this one. `Later` splits what is long.

The messages hold values of the image, not of the wire: LeaderAndIsr (key 4), StopReplica (5), UpdateMetadata (6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from barnabas.kproto import KafkaError
from barnabas.replication.store.store import Op
from barnabas.replication.values.image import (
    LEADER_BEING_DELETED,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    is_internal,
)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition of a topic as it is now. is_new: its first state; a broker may make an empty log for it."""

    topic: str
    topic_id: bytes
    partition: PartitionImage
    is_new: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Which partition it is."""
        return self.topic, self.partition.index


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow these partitions. leaders: the brokers that lead them, for their addresses."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[PartitionChange, ...]
    leaders: tuple[BrokerImage, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Metadata for clients: all live brokers, and the partitions that changed. Leader −2: being deleted, remove it."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    brokers: tuple[BrokerImage, ...]
    partitions: tuple[PartitionChange, ...] = ()


@dataclass(frozen=True, slots=True)
class StoppedPartition:
    """One partition of a StopReplica. leader_epoch −2: its topic is being deleted. delete: remove the log as well."""

    topic: str
    index: int
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop leading or following these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StoppedPartition, ...]


Message = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send `message` to a broker, in order with everything else sent to it."""

    broker: int
    message: Message


def nothing() -> list[Effect]:
    """No effects."""
    return []


@dataclass(slots=True, eq=False)
class Work:
    """Commits of one purpose, for the controller itself: what to do with their outcomes.

    decide: a partition's next state, given its present one (None: no change); called again when the store has refused a
    state because another broker wrote it. announce: the messages about written states. done: what follows when no
    commit is outstanding any more. again: replaces `decide` where a commit writes more than states; called with the
    number of the attempt. topic: the topic whose node no other work may write until then. outstanding: commits without
    outcome, ≥ 0; `done` is called when it returns to 0.
    """

    decide: Callable[[PartitionChange], PartitionChange | None]
    announce: Callable[[Sequence[PartitionChange]], list[Effect]]
    done: Callable[[], list[Effect]] = nothing
    again: Callable[[int], list[Effect]] | None = None
    topic: str | None = None
    outstanding: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Write to the store; the first operation is the check of the controller epoch.

    topics: topics whose node this writes, as they are afterwards. states: partitions whose state it writes. deletion:
    topic whose deletion it asks for. ensure: persistent nodes to make first if absent. token: whose request this is,
    for `Answer`. event: what the log says of the topic once it is written ("" for nothing). attempt: counts
    repetitions. work: what it is a part of.
    """

    ops: tuple[Op, ...]
    topics: tuple[TopicImage, ...] = ()
    states: tuple[PartitionChange, ...] = ()
    deletion: str | None = None
    ensure: tuple[str, ...] = ()
    token: object = None
    event: str = ""
    attempt: int = 0
    work: Work | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the nodes of a deleted topic, the request for its deletion last; then call `Controller.removed`, once for
    those that stand together.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A request is done (error None) or refused. The brokers' images may not show the result yet."""

    token: object = field(repr=False)
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Much is left to decide: call this when what stands before it is done, and others have had their turn. It decides
    from what is there by then, and returns effects that take this one's place.
    """

    decide: Callable[[], list[Effect]] = field(repr=False, compare=False)


Effect = SendMessage | Commit | Remove | Answer | Later


def answer(token: object, error: KafkaError | None = None) -> list[Effect]:
    """The answer to a request, if there is one that waits for it."""
    return [] if token is None else [Answer(token, error)]


def apply_update(image: Image, update: UpdateMetadata, configs: Mapping[str, Mapping[str, str]]) -> Image:
    """A broker's image after an UpdateMetadata. configs: settings of topics new to the image, by name."""
    by_topic: dict[str, list[PartitionChange]] = {}
    for change in update.partitions:
        by_topic.setdefault(change.topic, []).append(change)
    changed: list[TopicImage] = []
    removed: list[str] = []
    for name, changes in by_topic.items():
        if changes[0].partition.leader == LEADER_BEING_DELETED:
            removed.append(name)
            continue
        topic = image.topics.get(name)
        if topic is None or topic.topic_id != changes[0].topic_id:
            config = MappingProxyType(dict(configs.get(name, {})))
            topic = TopicImage(name, changes[0].topic_id, (), config, is_internal(name))
        changed.append(topic.with_partitions(change.partition for change in changes))
    if changed or removed:
        image = image.with_topics(changed, removed)
    brokers = {broker.id: broker for broker in update.brokers}
    if brokers != image.brokers:
        image = image.with_brokers(brokers)
    if (image.controller_id, image.controller_epoch) != (update.controller_id, update.controller_epoch):
        image = image.with_controller(update.controller_id, update.controller_epoch)
    return image


def being_deleted(topic: TopicImage) -> tuple[PartitionChange, ...]:
    """The changes that make brokers forget a topic."""
    name, topic_id = topic.name, topic.topic_id
    return tuple(
        PartitionChange(name, topic_id, replace(partition, leader=LEADER_BEING_DELETED, leader_epoch=-2))
        for partition in topic.partitions
    )
