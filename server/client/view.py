"""What a client knows of a cluster: brokers, topics, leaders. Immutable, replaced as a whole with each Metadata answer.

An answer may come from a broker that lags behind: a partition's leader epoch never goes back while its topic has the
same id (KIP-320), else the older answer would send the next request to the old leader again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import MetadataResponse
from barnabas.server.client.failures import Failed

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker says that clients find it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionView:
    """leader: a broker's id, or NO_LEADER. `code`: what the answer said of it."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicView:
    """`topic_id`: 16 bytes, zeros from brokers before 2.8. `code`: why there are no partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionView]
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`controller_id`: -1 for none known."""

    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def after(self, answer: MetadataResponse, asked: Iterable[str] | None) -> ClusterView:
        """This and what `answer` says. asked: the topics that were asked for; None: all, so that what is not in the
        answer does not exist.
        """
        topics = {} if asked is None else dict(self.topics)
        for name in asked or ():
            topics.pop(name, None)
        for row in answer.topics:
            if row.name is not None:
                topics[row.name] = _merged(self.topics.get(row.name), _topic(row.name, row))
        brokers = {row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in answer.brokers}
        return ClusterView(brokers, answer.controller_id, answer.cluster_id, topics)

    def leader(self, topic: str, index: int) -> int | Failed | None:
        """The broker that leads the partition; Failed: it cannot have one; None: not known (now)."""
        known = self.topics.get(topic)
        if known is None:
            return None
        if known.code:
            return None if known.code in _PASSING else Failed(known.code)
        partition = known.partitions.get(index)
        if partition is None:
            many = len(known.partitions)
            return Failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has {many} partitions, from 0 on")
        return partition.leader if partition.leader in self.brokers else None

    def forget_leader(self, topic: str, index: int) -> ClusterView:
        """Without what is known of this partition's leader, until the next answer."""
        known = self.topics.get(topic)
        if known is None or index not in known.partitions:
            return self
        partitions = {**known.partitions, index: replace(known.partitions[index], leader=NO_LEADER)}
        return replace(self, topics={**self.topics, topic: replace(known, partitions=partitions)})


_PASSING: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)


def _topic(name: str, row: MetadataResponse.MetadataResponseTopic) -> TopicView:
    partitions = {
        each.partition_index: PartitionView(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            ErrorCode.of(each.error_code),
        )
        for each in sorted(row.partitions, key=lambda each: each.partition_index)
    }
    return TopicView(name, bytes(row.topic_id), row.is_internal, partitions, ErrorCode.of(row.error_code))


def _merged(old: TopicView | None, new: TopicView) -> TopicView:
    """`new`, but for partitions of which `old` knows a later leader."""
    if old is None or old.topic_id != new.topic_id or new.topic_id == ZERO_UUID or new.code:
        return new
    later = {
        index: old.partitions[index]
        for index, each in new.partitions.items()
        if index in old.partitions and old.partitions[index].leader_epoch > each.leader_epoch >= 0
    }
    return replace(new, partitions={**new.partitions, **later}) if later else new
