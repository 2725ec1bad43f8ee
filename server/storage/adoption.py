"""Topics that a new broker finds on disk: a log directory that was filled by Apache Kafka, or copied from elsewhere.

A broker alone keeps its metadata in a store inside its log directory. A directory of Apache Kafka has none: it says
which partitions there are and their topic ids, and, if it was written without ZooKeeper (KRaft), has the cluster's
metadata log. So when the store is new, and only then, the topics on disk are entered into it:

- topics, ids, numbers of partitions and settings out of the metadata log, if there is one; a directory whose topic it
  does not know was deleted there, and is left alone;
- without it: ids of `partition.metadata`, as many partitions as the highest number on disk says, and, as the topics'
  settings are not known, *no retention*: a copied directory must not lose data by defaults that were not chosen for it.
  Internal topics get the settings their coordinators need. A folder is a partition only if it holds a segment, and if
  its number is credible (`PARTITIONS_MAX`): `backup-20240101` must not become a topic of 20 million partitions;
- leader epochs above those in the logs, and producer ids above all that the logs and `__transaction_state` know: a new
  producer must not meet the sequence numbers of an old one.

Once the store has been used, its word stands: what lies on disk beside it is named in the log, and not served.
In a cluster the tree knows the topics; nothing is done here.

Not done: settings of brokers, users and quotas of KRaft's metadata are not taken over.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from barnabas.kproto import DecodeError
from barnabas.kproto.records import CorruptRecords
from barnabas.kproto.stored import TransactionLogValue, decode_versioned
from barnabas.logdir import LogDir, LogDirError
from barnabas.logdir.dirs.survey import Metadata, has_segments, kraft_metadata, log_values, partitions_in, topic_id_of
from barnabas.replication import TRANSACTION_STATE_TOPIC, Store, is_internal, new_uuid, topic_names
from barnabas.replication.tree.found_topics import FoundTopic, enter_topics, is_new, reserve_producer_ids
from barnabas.server.cluster.topic_requests import auto_topic
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.broker")

NO_RETENTION = {"retention.ms": "-1", "retention.bytes": "-1"}
PARTITIONS_MAX = 1_000
PARTITIONS_PER_DIRECTORY_MAX = 100
"""A topic found on disk has at most the larger of this many partitions, and this many for each of its directories
here: the others may have been on other brokers.
"""
SHOWN = 10
"""How many names a message shows."""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic on disk."""

    topic_id: bytes
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is going to be entered, by name of the topic. next_producer_id: as KRaft's metadata says, else 0."""

    topics: Mapping[str, Found]
    next_producer_id: int = 0

    @property
    def configs(self) -> dict[str, Mapping[str, str]]:
        """The topics' own settings: their logs are opened with them."""
        return {name: found.config for name, found in self.topics.items()}

    async def enter(self, store: Store, broker_id: int, log_dirs: Sequence[LogDir], offload: Offload) -> None:
        """Enter all into the store, when the logs are open. Raises StoreError, LogDirError, OSError."""
        logs = {key: opened for log_dir in log_dirs for key, opened in log_dir.logs.items()}
        topics = []
        for name, found in self.topics.items():
            epochs = tuple(
                logs[name, index].latest_epoch + 1 if (name, index) in logs else 0 for index in range(found.partitions)
            )
            topics.append(FoundTopic(name, found.topic_id, epochs, found.config))
        first_free = max(
            [self.next_producer_id, await offload(_next_transactional_id, log_dirs)]
            + [max(opened.producers.entries, default=-1) + 1 for opened in logs.values()]
        )
        await reserve_producer_ids(store, broker_id, first_free)
        await enter_topics(store, broker_id, topics)
        log.info(
            "adopted %d topics with %d partitions found in %s",
            len(topics),
            sum(found.partitions for found in self.topics.values()),
            ", ".join(log_dir.path for log_dir in log_dirs),
        )


async def find_topics(
    store: Store, log_dirs: Sequence[LogDir], config: BrokerConfig, rng: Random, offload: Offload
) -> Adoption | None:
    """What is to be entered into `store`, before the logs are opened; None if there is nothing.

    Raises StoreError, LogDirError (KRaft's metadata cannot be read), OSError.
    """
    names = {name for log_dir in log_dirs for name, _ in partitions_in(log_dir.disk, log_dir.path)}
    if not await is_new(store):
        unknown = sorted(names.difference(await topic_names(store)))
        if unknown:
            log.warning("not served, because the metadata has no such partitions: %s", _names(unknown))
        return None
    if not names:
        return None
    on_disk = await offload(_topic_ids, log_dirs)
    metadata = await offload(_kraft_metadata, log_dirs)
    if metadata is not None:
        return _recorded(metadata, on_disk)
    unknown = [name for name in on_disk if not is_internal(name)]
    if unknown:
        log.warning(
            "the settings of %s are not in the log directory: retention is off for them (retention.ms=-1 and "
            "retention.bytes=-1); set what they had with kafka-configs",
            _names(unknown),
        )
    topics = {name: _credible(name, indexes) for name, indexes in on_disk.items()}
    return Adoption({name: _guessed(name, indexes, config, rng) for name, indexes in topics.items() if indexes})


def _topic_ids(log_dirs: Sequence[LogDir]) -> dict[str, dict[int, bytes | None]]:
    """Topic ids by topic and partition, None where the disk does not say."""
    found: dict[str, dict[int, bytes | None]] = {}
    for log_dir in log_dirs:
        for name, index in partitions_in(log_dir.disk, log_dir.path):
            if not has_segments(log_dir.disk, log_dir.path, name, index):
                log.warning("%s/%s-%d holds no segment: it is ignored", log_dir.path, name, index)
                continue
            found.setdefault(name, {})[index] = topic_id_of(log_dir.disk, log_dir.path, name, index)
    return found


def _recorded(metadata: Metadata, on_disk: Mapping[str, Mapping[int, bytes | None]]) -> Adoption:
    """What the metadata knows of the topics on disk, and of those on other brokers' disks nothing."""
    topics = {}
    strays = []
    for name, indexes in on_disk.items():
        topic = metadata.topics.get(name)
        if topic is None or all(topic_id not in (None, topic.topic_id) for topic_id in indexes.values()):
            strays.append(name)
            continue
        topics[name] = Found(topic.topic_id, topic.partitions, topic.config)
        absent = [index for index in range(topic.partitions) if index not in indexes]
        if absent:
            log.warning("partitions %s of %s are not on this disk: they start empty", _names(absent), name)
    if strays:
        log.warning("ignored, because Apache Kafka's metadata had deleted them: %s", _names(strays))
    return Adoption(topics, metadata.next_producer_id)


def _credible(name: str, indexes: Mapping[int, bytes | None]) -> Mapping[int, bytes | None]:
    """Those of a topic's partitions whose numbers can be believed."""
    limit = max(PARTITIONS_MAX, PARTITIONS_PER_DIRECTORY_MAX * len(indexes))
    strange = [f"{name}-{index}" for index in indexes if index >= limit]
    if strange:
        log.warning(
            "ignored, because a topic of which %d partitions are here will not have more than %d: %s",
            len(indexes),
            limit,
            _names(strange),
        )
    return {index: topic_id for index, topic_id in indexes.items() if index < limit}


def _guessed(name: str, indexes: Mapping[int, bytes | None], config: BrokerConfig, rng: Random) -> Found:
    ids = Counter(topic_id for topic_id in indexes.values() if topic_id is not None)
    if len(ids) > 1:
        log.warning("partitions of %s have different topic ids: those with the rarer ones are not served", name)
    topic_id = ids.most_common(1)[0][0] if ids else new_uuid(rng)
    count = max(indexes) + 1
    settings: Mapping[str, str] = NO_RETENTION
    if is_internal(name):
        wanted = auto_topic(name, config)
        if count > len(indexes):
            # Which partition a group or a transactional id belongs to depends on how many there are.
            count = max(count, wanted.partitions)
        settings = {key: value for key, value in wanted.configs if value is not None}
    absent = [index for index in range(count) if index not in indexes]
    if absent:
        log.warning("partitions %s of %s are not on this disk: they start empty", _names(absent), name)
    return Found(topic_id, count, settings)


def _kraft_metadata(log_dirs: Sequence[LogDir]) -> Metadata | None:
    for log_dir in log_dirs:
        try:
            metadata = kraft_metadata(log_dir.disk, log_dir.path)
        except CorruptRecords as error:
            raise LogDirError(
                f"{log_dir.path}: Apache Kafka's metadata cannot be read: {error}. Without the directory of "
                "__cluster_metadata-0 the topics are taken over without their settings"
            ) from error
        if metadata is not None:
            return metadata
    return None


def _next_transactional_id(log_dirs: Sequence[LogDir]) -> int:
    """The first producer id above those of all transactional ids."""
    first_free = 0
    for log_dir in log_dirs:
        for (topic, _), opened in log_dir.logs.items():
            if topic == TRANSACTION_STATE_TOPIC:
                for value in log_values(log_dir.disk, opened.directory):
                    try:
                        _, state = decode_versioned(TransactionLogValue, value)
                    except DecodeError as error:
                        log.warning("skipping a record in %s: %s", opened.directory, error)
                        continue
                    first_free = max(first_free, state.producer_id + 1, state.next_producer_id + 1)
    return first_free


def _names(names: Sequence[object] | Mapping[str, object]) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
