"""Everything that stock clients can see on a broker, taken down as plain values, and what differs between two of them.

A picture holds, of every partition: log start, end and last stable offset, all records (offset, leader epoch, timestamp
and its type, key, value, headers) as `read_uncommitted` and `read_committed` see them, the offsets that belong to some
timestamps; of every topic its id and own settings; of every group its state, members and committed offsets. Internal
topics are topics like others. Timestamps are milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, OffsetSpec, ResourceType

TIMEOUT_S = 180
OFFSETS = "__consumer_offsets"
CLIENT: dict[str, str | int] = {"log_level": 0, "socket.timeout.ms": TIMEOUT_S * 1000}
"""Of librdkafka's: brokers go away here all the time, it need not say so; and Apache Kafka, with all its threads, may
be held up by a busy disk for longer than the minute that a request has otherwise.
"""
COMPACTED = ("compacted", "no-tombstones", "compacted-and-deleted", "compacted-format-1", "compacted-transactions")
NO_RECORDS = (*COMPACTED, OFFSETS)
"""Topics in which compaction leaves segments without records."""
NO_TIMES = "format-0"
ISOLATIONS = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}

Place = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """One record as a consumer gets it. leader_epoch: None where the broker does not say."""

    offset: int
    leader_epoch: int | None
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Picture:
    """See the module; `facts` are by a path of words, so that a difference can be named."""

    facts: dict[tuple[str, ...], Any]
    records: dict[tuple[str, Place], list[Seen]]

    def without(self, *kinds: str) -> Picture:
        """The picture without facts of these kinds (the first word of their paths)."""
        return Picture({path: fact for path, fact in self.facts.items() if path[0] not in kinds}, self.records)

    def only(self, topics: Collection[str]) -> Picture:
        """The picture of these topics, without groups."""
        return Picture(
            {path: fact for path, fact in self.facts.items() if path[0] != "group" and path[1] in topics},
            {key: records for key, records in self.records.items() if key[1][0] in topics},
        )


def take(bootstrap: str) -> Picture:
    """Take the picture of a broker. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    facts: dict[tuple[str, ...], Any] = {}
    partitions = _topics(admin, facts)
    records = {}
    for isolation in ISOLATIONS:
        for place, seen in read_all(bootstrap, partitions, isolation).items():
            records[isolation, place] = seen
    _offsets(admin, facts, partitions, records)
    _groups(admin, facts)
    return Picture(facts, records)


def read_all(bootstrap: str, partitions: Collection[Place], isolation: str) -> dict[Place, list[Seen]]:
    """All records of these partitions, each up to where its end (or last stable offset) was met."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            **CLIENT,
            "group.id": "picture",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "auto.offset.reset": "error",
        }
    )
    found: dict[Place, list[Seen]] = {place: [] for place in partitions}
    open_ends = set(partitions)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, index, -2) for topic, index in partitions])
        while open_ends:
            assert time.monotonic() < deadline, f"{isolation}: the ends of {sorted(open_ends)} were not met"
            for message in consumer.consume(5000, 0.2):
                place = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    kind, timestamp = message.timestamp()
                    found[place].append(
                        Seen(
                            message.offset(),
                            message.leader_epoch(),
                            kind,
                            timestamp,
                            message.key(),
                            message.value(),
                            tuple(message.headers() or ()),
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(place)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _topics(admin: AdminClient, facts: dict[tuple[str, ...], Any]) -> list[Place]:
    names = sorted(admin.list_topics(timeout=TIMEOUT_S).topics)
    partitions = []
    described = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
    for name, future in described.items():
        topic = future.result(TIMEOUT_S)
        facts["topic id", name] = str(topic.topic_id)
        facts["partitions", name] = sorted(partition.id for partition in topic.partitions)
        partitions += [(name, partition.id) for partition in topic.partitions]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
        facts["config", resource.name] = {
            entry.name: entry.value
            for entry in future.result(TIMEOUT_S).values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
    return partitions


def _offsets(
    admin: AdminClient,
    facts: dict[tuple[str, ...], Any],
    partitions: Collection[Place],
    records: dict[tuple[str, Place], list[Seen]],
) -> None:
    def ask(what: str, specs: dict[Place, OffsetSpec], isolation: str) -> None:
        request = {TopicPartition(*place): spec for place, spec in specs.items()}
        answers = admin.list_offsets(request, isolation_level=ISOLATIONS[isolation], request_timeout=TIMEOUT_S)
        for partition, future in answers.items():
            try:
                info = future.result(TIMEOUT_S)
                fact: object = info.offset, info.timestamp
            except KafkaException as error:
                fact = error.args[0].name()
            facts[what, partition.topic, str(partition.partition), isolation] = fact

    for isolation in ISOLATIONS:
        ask("start", dict.fromkeys(partitions, OffsetSpec.earliest()), isolation)
        ask("end", dict.fromkeys(partitions, OffsetSpec.latest()), isolation)
        ask("max timestamp", dict.fromkeys(partitions, OffsetSpec.max_timestamp()), isolation)
        times = {place: _some_times(records[isolation, place]) for place in partitions}
        for number in range(4):
            wanted = {place: OffsetSpec.for_timestamp(some[number]) for place, some in times.items() if some}
            ask(f"time {number}", wanted, isolation)


def _some_times(records: list[Seen]) -> list[int]:
    """Before all, in the middle, the last, and after all."""
    times = sorted({seen.timestamp for seen in records if seen.timestamp >= 0})
    return [max(times[0] - 1, 0), times[len(times) // 2], times[-1], times[-1] + 1] if times else []


def _groups(admin: AdminClient, facts: dict[tuple[str, ...], Any]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    deadline = time.monotonic() + TIMEOUT_S
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    while listed.errors:  # a broker that has just begun may still read what it knows of groups
        assert time.monotonic() < deadline, listed.errors
        time.sleep(0.1)
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    names = sorted(group.group_id for group in listed.valid if group.group_id)
    if names:
        for name, future in admin.describe_consumer_groups(names, request_timeout=TIMEOUT_S).items():
            group = future.result(TIMEOUT_S)
            members = sorted(
                (
                    member.group_instance_id or "",
                    member.member_id,
                    member.client_id,
                    sorted((p.topic, p.partition) for p in member.assignment.topic_partitions),
                )
                for member in group.members
            )
            facts["group", name, "state"] = (group.state.name, group.partition_assignor, members)
    for name in names:
        [future] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
        facts["group", name, "offsets"] = sorted(
            (p.topic, p.partition, p.offset, p.metadata or "", p.leader_epoch)
            for p in future.result(TIMEOUT_S).topic_partitions
        )


def differences(expected: Picture, found: Picture) -> list[str]:
    """What is not the same, each in a line; nothing if all is."""
    return [*_facts_apart(expected, found), *_records_apart(expected, found)]


def _facts_apart(expected: Picture, found: Picture) -> Iterator[str]:
    for path in sorted(expected.facts.keys() | found.facts.keys()):
        one, other = expected.facts.get(path, "absent"), found.facts.get(path, "absent")
        if one != other:
            yield f"{' / '.join(path)}: {one!r} is {other!r}"


def _records_apart(expected: Picture, found: Picture) -> Iterator[str]:
    for key in sorted(expected.records.keys() | found.records.keys()):
        one, other = expected.records.get(key), found.records.get(key)
        isolation, (topic, index) = key
        where = f"{topic}-{index} {isolation}"
        if one is None or other is None:
            yield f"{where}: {'absent' if one is None else 'there'} and {'there' if one is None else 'absent'}"
            continue
        for before, after in zip(one, other, strict=False):
            if before != after:
                yield f"{where}: {_shown(before)} is {_shown(after)}"
                break
        if len(one) != len(other):
            yield f"{where}: {len(one)} records are {len(other)}"


def _shown(seen: Seen) -> str:
    def short(data: bytes | None) -> str:
        return repr(data) if data is None or len(data) < 60 else f"{data[:50]!r}… ({len(data)} bytes)"

    return (
        f"offset {seen.offset} epoch {seen.leader_epoch} time {seen.timestamp_type}/{seen.timestamp} "
        f"key {short(seen.key)} value {short(seen.value)} headers {seen.headers}"
    )


def assert_same(*, kafka: Picture, ours: Picture) -> None:
    """Raises AssertionError that names the first differences between what Apache Kafka shows and what our broker shows.

    Forgiven: offsets of timestamps that Apache Kafka does not find. It looks into the first segment whose largest
    timestamp is late enough, and if no record there is, it gives up; and it takes the age of the file for the largest
    timestamp of a segment without records, or of format 0. And before 4.0 it refuses to look for times, or for the
    largest one, where a topic's setting says format 0.
    """
    forgiven = {
        path: fact
        for path, fact in ours.facts.items()
        if path[0].startswith(("time ", "max timestamp"))
        and (path[1] in NO_RECORDS or path[1].startswith(NO_TIMES))
        and kafka.facts.get(path) in ((-1, -1), "UNSUPPORTED_FOR_MESSAGE_FORMAT")
    }
    apart = differences(Picture({**kafka.facts, **forgiven}, kafka.records), ours)
    assert not apart, f"{len(apart)} differences between Apache Kafka and ours:\n" + "\n".join(apart[:25])
