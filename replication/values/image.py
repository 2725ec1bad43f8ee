"""The image of the cluster: brokers, topics, partitions, configurations. Immutable, and replaced whole.

A request reads the image once and answers from it; a change makes a new image that shares all the
rest. The tables of topics (by name, by id) are copied for a new image: 20 to 60 µs for 2,000 topics, so changes that
come together should go into one call of `with_topics`.

Epochs: `BrokerImage.epoch` is the czxid of the registration; `leader_epoch` counts leaderships of a partition from 0;
`partition_epoch` is the version of the partition's state node. Ids of topics are 16 bytes.

Not here: quotas, users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

NO_LEADER = -1
LEADER_BEING_DELETED = -2

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC))

NO_CONFIG: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to reach a broker. listener: its name; security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One live broker."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    jmx_port: int = -1

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. leader −1: none at the moment. adding/removing: non-empty while it is being reassigned.

    leader_epoch −1: assigned to brokers, but it never had a leader; nothing but `replicas` is known. While it is being
    reassigned `replicas` holds old and new ones. offline_replicas: those that cannot serve, by the controller's
    UpdateMetadata; not kept elsewhere.
    """

    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    recovering: bool = False
    offline_replicas: tuple[int, ...] = ()

    @property
    def has_state(self) -> bool:
        """It had a leader once, so there is a state node."""
        return self.leader_epoch >= 0

    @property
    def is_reassigning(self) -> bool:
        """Whether it is being moved to other replicas."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas when a reassignment has finished; all of them without one."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        """The replicas before a reassignment; all of them without one."""
        return tuple(replica for replica in self.replicas if replica not in self.adding_replicas)

    def reassigned_to(self, target: Sequence[int]) -> PartitionImage:
        """With these replicas as its target (KIP-455): new ones first, those to leave behind them."""
        origin = self.origin_replicas
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return replace(
            self,
            replicas=replicas,
            adding_replicas=tuple(replica for replica in replicas if replica not in origin),
            removing_replicas=tuple(replica for replica in replicas if replica not in target),
        )


def unled(index: int, replicas: tuple[int, ...] = ()) -> PartitionImage:
    """A partition before its first leader."""
    return PartitionImage(index, NO_LEADER, leader_epoch=-1, partition_epoch=-1, replicas=replicas, isr=())


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `partitions[i].index == i`. config: what is set on the topic itself, by Kafka's dotted names."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str] = field(default_factory=lambda: NO_CONFIG)
    is_internal: bool = False

    def with_partitions(self, changed: Iterable[PartitionImage]) -> TopicImage:
        """The topic with some partitions replaced or added; a gap is filled with partitions without state."""
        partitions = list(self.partitions)
        for partition in changed:
            while partition.index >= len(partitions):
                partitions.append(unled(len(partitions)))
            partitions[partition.index] = partition
        return replace(self, partitions=tuple(partitions))


@dataclass(frozen=True)
class Image:
    """The whole cluster. broker_configs: by broker id in decimal, and '<default>' for all brokers. group_configs: by
    group id, of groups that have settings of their own. client_metrics: by subscription (KIP-714); the same mapping as
    long as none changes.
    """

    cluster_id: str = ""
    controller_id: int = -1
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict, repr=False)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __hash__(self) -> int:  # a key for what is cached per image
        return id(self)

    @cached_property
    def topic_names(self) -> tuple[str, ...]:
        """Names of all topics, sorted."""
        return tuple(sorted(self.topics))

    def with_topics(self, changed: Iterable[TopicImage], removed: Iterable[str] = ()) -> Image:
        """The image with topics added or replaced, and others gone (names; unknown ones are ignored)."""
        topics = dict(self.topics)
        by_id = dict(self.topics_by_id)
        for name in removed:
            gone = topics.pop(name, None)
            if gone is not None:
                by_id.pop(gone.topic_id, None)
        for topic in changed:
            before = topics.get(topic.name)
            if before is not None and before.topic_id != topic.topic_id:
                by_id.pop(before.topic_id, None)
            topics[topic.name] = topic
            by_id[topic.topic_id] = topic
        return replace(self, topics=topics, topics_by_id=by_id)

    def with_brokers(self, brokers: Mapping[int, BrokerImage]) -> Image:
        """The image with another set of live brokers."""
        return replace(self, brokers=dict(sorted(brokers.items())))

    def with_broker_config(self, name: str, config: Mapping[str, str]) -> Image:
        """The image with another dynamic configuration of a broker ('1', or '<default>')."""
        return replace(self, broker_configs={**self.broker_configs, name: MappingProxyType(dict(config))})

    def with_group_config(self, group_id: str, config: Mapping[str, str]) -> Image:
        """The image with other settings of a group; without entry if there are none; this one if nothing changes."""
        if config == self.group_configs.get(group_id, {}):
            return self
        configs = {**self.group_configs, group_id: MappingProxyType(dict(config))}
        if not config:
            del configs[group_id]
        return replace(self, group_configs=configs)

    def with_client_metrics(self, name: str, config: Mapping[str, str]) -> Image:
        """The image with another client-metrics subscription; without it if it has no settings; this one if nothing
        changes: settings are read once more at each notice of a change, by the broker that made it, too.
        """
        if config == self.client_metrics.get(name, {}):
            return self
        subscriptions = {**self.client_metrics, name: MappingProxyType(dict(config))}
        if not config:
            del subscriptions[name]
        return replace(self, client_metrics=subscriptions)

    def with_controller(self, controller_id: int, controller_epoch: int) -> Image:
        """The image with another controller; −1 for none."""
        return replace(self, controller_id=controller_id, controller_epoch=controller_epoch)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with this id, or None."""
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """The partition, or None."""
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


def is_internal(name: str) -> bool:
    """A topic of the coordinators, not of a user."""
    return name in INTERNAL_TOPICS
