"""What a log directory holds, without opening its logs: whose partitions lie there, and what Apache Kafka's own
metadata log, if there is one, says about their topics.

Apache Kafka without ZooKeeper (KRaft) keeps its metadata in `__cluster_metadata-0`, on every broker:

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint    all metadata before that offset, as record batches
    <base offset, 20 digits>.log                             what was recorded, since then at least

The value of a record is an unsigned varint frame version (1), an unsigned varint kind, an unsigned varint version, and
the fields, in the compact encoding. Read here, and of these only the fields that stand in front:

    2 TopicRecord        name, topic id
    3 PartitionRecord    partition (int32), topic id, ...
    4 ConfigRecord       resource type (int8, 2 = topic), resource name, key, value or null
    9 RemoveTopicRecord  topic id
    15 ProducerIdsRecord broker (int32), broker epoch (int64), next producer id (int64)

All other kinds are passed over. Sources: `metadata/src/main/resources/common/metadata/*.json` and
`MetadataRecordSerde.java` (3.3 to 4.x). Offsets count records.

Not done: the end of the metadata log that no quorum has committed is taken as if it were (a broker alone is its own
quorum); settings of brokers, users, quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.kproto.records import CorruptRecords, iter_records
from barnabas.logdir.files import layout
from barnabas.logdir.files.disk import Disk, read_file
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.scan import iter_batches

METADATA_DIR = "__cluster_metadata-0"
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")

TOPIC, PARTITION, CONFIG, REMOVE_TOPIC, PRODUCER_IDS = 2, 3, 4, 9, 15
TOPIC_RESOURCE = 2


@dataclass(slots=True)
class RecordedTopic:
    """A topic of KRaft's metadata. `partitions`: how many it has."""

    name: str
    topic_id: bytes
    partitions: int = 0
    config: dict[str, str] = field(default_factory=dict)


class Metadata(NamedTuple):
    """The content of KRaft's metadata. `topics` by name; `next_producer_id`: the first unassigned one."""

    topics: dict[str, RecordedTopic]
    next_producer_id: int


def partitions_in(disk: Disk, path: str) -> list[tuple[str, int]]:
    """The partitions that a log directory holds. Raises OSError.

    Left out: directories that were given up or set aside, and KRaft's metadata.
    """
    found = []
    for entry in sorted(disk.list(path)):
        parsed = layout.parse_partition_dir(entry.name) if entry.is_dir else None
        if parsed is not None and not parsed.mark and entry.name != METADATA_DIR:
            found.append((parsed.topic, parsed.partition))
    return found


def has_segments(disk: Disk, path: str, topic: str, partition: int) -> bool:
    """Whether a partition's directory holds a segment, as that of every partition does. Raises OSError."""
    entries = disk.list(f"{path}/{layout.partition_dir(topic, partition)}")
    parsed = [layout.parse_file_name(entry.name) for entry in entries if not entry.is_dir]
    return any(known is not None and known[1] == layout.LOG for known in parsed)


def topic_id_of(disk: Disk, path: str, topic: str, partition: int) -> bytes | None:
    """The topic id that a partition's directory names; None if it has none that can be read. Raises OSError."""
    name = f"{path}/{layout.partition_dir(topic, partition)}/{layout.PARTITION_METADATA}"
    try:
        return layout.decode_partition_metadata(read_file(disk, name), name)
    except (FileNotFoundError, CorruptFile):
        return None


def kraft_metadata(disk: Disk, path: str) -> Metadata | None:
    """What the KRaft metadata in a log directory says; None if there is none.

    Raises CorruptRecords, OSError.
    """
    directory = f"{path}/{METADATA_DIR}"
    try:
        names = sorted(entry.name for entry in disk.list(directory) if not entry.is_dir)
    except FileNotFoundError:
        return None
    reader = _Reader()
    end = 0
    for name in reversed(names):
        match = _SNAPSHOT.fullmatch(name)
        if match:
            end = int(match[1])
            for _, value in file_values(disk, f"{directory}/{name}"):
                reader.take(value)
            break
    for name in names:
        parsed = layout.parse_file_name(name)
        if parsed is not None and parsed[1] == layout.LOG:
            for offset, value in file_values(disk, f"{directory}/{name}"):
                if offset >= end:
                    reader.take(value)
    return reader.result()


def log_values(disk: Disk, directory: str) -> Iterator[bytes]:
    """Values of all data records of a partition's log, null ones left out. Raises CorruptRecords, OSError."""
    for entry in sorted(disk.list(directory)):
        parsed = layout.parse_file_name(entry.name)
        if parsed is not None and parsed[1] == layout.LOG:
            for _, value in file_values(disk, f"{directory}/{entry.name}"):
                yield value


def file_values(disk: Disk, path: str) -> Iterator[tuple[int, bytes]]:
    """Offsets and values of the data records in a file of v2 batches. A batch cut off at the end is left out.

    Raises CorruptRecords, OSError.
    """
    fd = disk.open(path)
    try:
        for batch in iter_batches(disk, fd, 0, disk.size(fd), whole=True):
            if batch.header is None or batch.header.is_control or batch.data is None:
                continue
            for record in iter_records(batch.data):
                if record.value is not None:
                    yield record.offset, record.value
    finally:
        disk.close(fd)


class _Reader:
    """Plays metadata records back."""

    def __init__(self) -> None:
        self._topics: dict[bytes, RecordedTopic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._next_producer_id = 0

    def take(self, value: bytes) -> None:
        """Raises CorruptRecords."""
        fields = _Fields(value)
        try:
            fields.varint()
            kind = fields.varint()
            fields.varint()
            if kind == TOPIC:
                name, topic_id = fields.text(), fields.uuid()
                if name is not None:
                    self._topics[topic_id] = RecordedTopic(name, topic_id)
            elif kind == PARTITION:
                index, topic_id = fields.integer(4), fields.uuid()
                topic = self._topics.get(topic_id)
                if topic is not None:
                    topic.partitions = max(topic.partitions, index + 1)
            elif kind == CONFIG:
                self._config(fields.integer(1), fields.text() or "", fields.text() or "", fields.text())
            elif kind == REMOVE_TOPIC:
                topic = self._topics.pop(fields.uuid(), None)
                if topic is not None:
                    self._configs.pop(topic.name, None)
            elif kind == PRODUCER_IDS:
                fields.skip(12)
                self._next_producer_id = max(self._next_producer_id, fields.integer(8))
        except (IndexError, UnicodeDecodeError) as error:
            raise CorruptRecords(f"a metadata record of {len(value)} bytes cannot be read: {error}") from None

    def _config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        if resource_type != TOPIC_RESOURCE:
            return
        config = self._configs.setdefault(name, {})
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value

    def result(self) -> Metadata:
        for topic in self._topics.values():
            topic.config = self._configs.get(topic.name, {})
        return Metadata({topic.name: topic for topic in self._topics.values()}, self._next_producer_id)


class _Fields:
    """The fields of a record, in their order. Raises IndexError when there are none left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def skip(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise IndexError("it ends too early")
        self._at += size
        return taken

    def integer(self, size: int) -> int:
        return int.from_bytes(self.skip(size), "big", signed=True)

    def uuid(self) -> bytes:
        return self.skip(16)

    def text(self) -> str | None:
        length = self.varint()
        return self.skip(length - 1).decode() if length else None
