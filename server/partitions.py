"""All partitions of this broker, by name and by topic id, and the round's write.

The controller driver tells which to lead, to delete, or to configure anew; handlers look them up. `write_staged` ends
a round: every partition that staged something writes once, then the callbacks left with `after_write` answer the
Produce requests of the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from kproto import ErrorCode, KafkaError
from logdir import LogConfig, LogDir
from replication import GROUP_METADATA_TOPIC, Image, PartitionImage
from server.partition import Partition

log = logging.getLogger("barnabas.partitions")


class GroupRoles(Protocol):
    """Who coordinates groups, and so must know what becomes of `__consumer_offsets` and of topics."""

    def lead(self, partition: Partition) -> None: ...

    def resign(self, index: int) -> None: ...

    def topics_deleted(self, topics: Collection[str]) -> None: ...


class Partitions:
    """See the module. `log_config(topic_config)` turns a topic's own settings into its effective `LogConfig`;
    `failed(error)` is called once when the log directory cannot be written any more.
    """

    def __init__(
        self,
        broker_id: int,
        log_dir: LogDir,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        current_image: Callable[[], Image],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._broker_id = broker_id
        self.log_dir = log_dir
        self._log_config = log_config
        self._image = current_image
        self._failed = failed
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._indexes: dict[str, set[int]] = {}
        self.groups: GroupRoles | None = None
        self._staged: dict[Partition, None] = {}
        self._after_write: list[Callable[[], None]] = []

    # -- look-up -----------------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """Raises KafkaError 3 (no such partition) or 6 (not on this broker)."""
        partition = self._by_name.get((topic, index))
        if partition is not None:
            return partition
        known = self._image().topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Raises KafkaError 100 (no such topic id), 3 (no such partition) or 6 (not on this broker)."""
        partition = self._by_id.get((topic_id, index))
        if partition is not None:
            return partition
        known = self._image().topic_by_id(topic_id)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if 0 <= index < len(known.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    # -- roles, told by the controller -------------------------------------------------------------------------------

    def become_leader(self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str]) -> Partition:
        """Lead a partition; its log is opened, or created when there is none."""
        partition = self._by_name.get((topic, image.index))
        if partition is None:
            partition_log = self.log_dir.open_or_create(topic, image.index, topic_id, self._log_config(config))
            partition = Partition(
                self._broker_id,
                topic,
                image.index,
                topic_id,
                partition_log,
                self._stage,
                self.log_dir.high_watermark(topic, image.index),
            )
            self._by_name[topic, image.index] = partition
            self._indexes.setdefault(topic, set()).add(image.index)
            self._by_id[topic_id, image.index] = partition
        partition.lead(image)
        if topic == GROUP_METADATA_TOPIC and self.groups is not None:
            self.groups.lead(partition)
        return partition

    def delete(self, topic: str, index: int) -> None:
        """Stop serving a partition and give its directory up for removal."""
        partition = self._by_name.pop((topic, index), None)
        if partition is None:
            return
        self._by_id.pop((partition.topic_id, index), None)
        indexes = self._indexes[topic]
        indexes.discard(index)
        last = not indexes
        if last:
            del self._indexes[topic]
        if self.groups is not None:
            if topic == GROUP_METADATA_TOPIC:
                self.groups.resign(index)
            elif last:
                self.groups.topics_deleted([topic])
        self._staged.pop(partition, None)
        partition.resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.log_dir.delete(topic, index)

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None:
        """A topic's settings changed (or the broker's defaults for them)."""
        effective = self._log_config(config)
        for index in self._indexes.get(topic, ()):
            self._by_name[topic, index].log.config = effective

    # -- the round's write -------------------------------------------------------------------------------------------

    def _stage(self, partition: Partition) -> None:
        self._staged[partition] = None

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back when everything staged so far was written, or has failed (`Partition.write_error` tells)."""
        self._after_write.append(callback)

    def write_staged(self) -> None:
        """End of a round: one write per partition that staged something, then the callbacks."""
        while self._staged or self._after_write:
            staged, self._staged = self._staged, {}
            for partition in staged:
                try:
                    partition.write()
                except KafkaError as error:
                    self._failed(error)
            callbacks, self._after_write = self._after_write, []
            for callback in callbacks:
                try:
                    callback()
                except Exception:
                    log.exception("a callback after the round's write failed")
