"""The same story at Apache Kafka 4.3.1 and here (`kafka_story`): equal answers, equal records, byte for byte but for
hashes and times; and at each step a coordinator that begins with Apache Kafka's records has what ours has.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.epochs.records import TargetEpoch
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.streams.config import StreamsGroupConfig
from barnabas.coordinator.group.streams.stored import StreamsEpoch, parse_streams_group, streams_record
from barnabas.coordinator.machine import Record
from barnabas.coordinator.tests.streams_groups.kafka_story import FILE, tell
from barnabas.coordinator.tests.streams_groups.streams_group_kit import StreamsKit
from barnabas.kproto.messages import StreamsGroupHeartbeatResponse


def captured() -> tuple[list[str], list[Record]]:
    answers, records = [], []
    for line in FILE.read_text().splitlines():
        what, _, rest = line.partition(" ")
        if what == "answer":
            answers.append(rest)
        else:
            key, _, value = rest.partition(" ")
            records.append(Record(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)))
    return answers, records


def comparable(record: Record) -> Any:
    """A record without what differs from cluster to cluster and from time to time."""
    what = parse_streams_group(record.key, record.value)
    assert what is not None
    if isinstance(what, StreamsEpoch) and what.facts is not None:
        return what._replace(facts=what.facts._replace(metadata_hash=0))
    if isinstance(what, TargetEpoch) and what.epoch is not None:
        return what._replace(assigned_at_ms=0)
    return streams_record(what)[:2]


def told() -> tuple[StreamsKit, list[str]]:
    config = StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0, num_standby_replicas=1)
    kit = StreamsKit(config, **{"in": 4})
    kit.client_id = "table"  # of the connection that captured the file

    def beat(name: str, epoch: int, fields: dict[str, Any]) -> StreamsGroupHeartbeatResponse:
        answer = kit.beat(name, epoch, **fields)
        if kit.wanted:
            kit.make_topics()
        return answer

    return kit, tell(beat)


def test_answers() -> None:
    answers, _ = captured()
    assert told()[1] == answers


def test_records() -> None:
    kit, _ = told()
    _, records = captured()
    assert [comparable(record) for record in kit.log] == [comparable(record) for record in records]
    for record in records:
        meaning = parse_streams_group(record.key, record.value)
        assert meaning is not None
        assert streams_record(meaning)[:2] == record[:2], "what is read is what was written"


def test_replay_of_its_log() -> None:
    kit, _ = told()
    _, records = captured()
    theirs, ours = (GroupShard(kit.config, streams_config=lambda: kit.streams_config) for _ in range(2))
    for offset, (record, own) in enumerate(zip(records, kit.log, strict=True)):
        theirs.replay(record.key, record.value, offset, offset)
        ours.replay(own.key, own.value, offset, offset)
        here, there = ours.groups["g"], theirs.groups["g"]
        for name in ("epoch", "members", "target_epoch", "target", "topology", "validated_epoch", "state_name"):
            assert getattr(here, name) == getattr(there, name), (offset, name)
