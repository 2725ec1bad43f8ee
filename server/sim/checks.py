"""What must hold, whatever happens: while the cluster runs, and at the end when it is healed.

`History` records the responses that clients got, and finds contradictions immediately:

- an acknowledged record has one offset, an offset one record, for good;
- a consumer is never shown two different records at one offset, nor a gap;
- a producer's refused sequence (OUT_OF_ORDER_SEQUENCE) on the record after the last acknowledged one means that the
  partition lost what it had acknowledged.

`watch` looks at the brokers themselves again and again: one leader per partition and leader epoch, a high watermark
that never goes back while a leader leads. `final` reads what is on the disks at the end: replicas identical, offsets
without a gap, no record lost, twice or out of order, group offsets not lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.kproto.records import iter_headers, iter_records
from barnabas.server.broker.broker import Broker
from barnabas.server.sim.world import World

TopicPartition = tuple[str, int]


class Item(NamedTuple):
    """What one record is: the lane that produced it, and its number there."""

    lane: str
    number: int

    def encode(self) -> bytes:
        return f"{self.lane}:{self.number}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Item:
        lane, _, number = value.decode().rpartition(":")
        return cls(lane, int(number))


class Commit:
    """Offsets that one member committed: the last one confirmed, the last one asked for."""

    def __init__(self) -> None:
        self.confirmed = -1
        self.asked = -1


class History:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at: dict[TopicPartition, dict[int, Item]] = defaultdict(dict)
        self.acknowledged: dict[TopicPartition, dict[Item, int]] = defaultdict(dict)
        self.given_up: dict[TopicPartition, set[Item]] = defaultdict(set)
        self.commits: dict[tuple[str, str, int], Commit] = defaultdict(Commit)
        self.shown_end: dict[TopicPartition, int] = defaultdict(int)
        self.acknowledged_count = 0
        self.shown_count = 0

    def record_acknowledged(self, key: TopicPartition, item: Item, offset: int, broker_id: int) -> None:
        """A producer got the response that `item` is at `offset`."""
        known = self.acknowledged[key].get(item)
        if known is not None:
            if known != offset:
                self._world.violation(f"{item} of {key} acknowledged at {known}, then at {offset} by {broker_id}")
            return
        self.acknowledged_count += 1
        self._world.mix(key, item, offset, broker_id)
        self.acknowledged[key][item] = offset
        self._at(key, item, offset, f"acknowledged by {broker_id}")

    def record_shown(self, key: TopicPartition, item: Item, offset: int, broker_id: int) -> None:
        """A consumer was given `item` at `offset`."""
        self.shown_count += 1
        self._world.mix(key, item, offset)
        self._at(key, item, offset, f"shown by {broker_id}")
        self.shown_end[key] = max(self.shown_end[key], offset + 1)

    def _at(self, key: TopicPartition, item: Item, offset: int, how: str) -> None:
        known = self.at[key].setdefault(offset, item)
        if known != item:
            self._world.violation(f"{key} offset {offset}: {item} {how}, but it was {known}")


class Watcher:
    """Looks at the brokers from outside, while they run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._watermarks: dict[tuple[int, int, str, int, int], int] = {}

    def look(self, brokers: Iterable[tuple[int, int, Broker]]) -> None:
        """brokers: (id, incarnation, broker) of all whose process is there."""
        leaders, watermarks = self._leaders, self._watermarks
        for broker_id, life, broker in brokers:
            for partition in broker.services.partitions:
                if not partition.is_leader:
                    continue
                topic, index, epoch = partition.topic, partition.index, partition.leader_epoch
                other = leaders.setdefault((topic, index, epoch), broker_id)
                if other != broker_id:
                    self._world.violation(f"{topic}-{index} epoch {epoch} is led by {other} and by {broker_id}")
                key = broker_id, life, topic, index, epoch
                before = watermarks.get(key, 0)
                if partition.high_watermark < before:
                    self._world.violation(
                        f"{topic}-{index}: high watermark of leader {broker_id} (epoch {epoch}) goes back from "
                        f"{before} to {partition.high_watermark}"
                    )
                if partition.high_watermark > partition.log_end_offset:
                    self._world.violation(
                        f"{topic}-{index}: high watermark {partition.high_watermark} of leader {broker_id} is beyond "
                        f"its log end {partition.log_end_offset}"
                    )
                watermarks[key] = partition.high_watermark


def log_bytes(broker: Broker, key: TopicPartition) -> bytes:
    """All batches that a broker has of a partition."""
    partition = broker.services.partitions.find(*key)
    if partition is None:
        return b""
    log, parts = partition.log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, upper_offset=log.log_end_offset, min_one_batch=True)
        if found is None:
            break
        data = found.read()
        last = offset
        for position, header in iter_headers(data):
            if header.last_offset >= offset:
                parts.append(data[position : position + header.size])
                last = header.next_offset
        if last == offset:
            break
        offset = last
    return b"".join(parts)


def differences(brokers: dict[int, Broker], keys: Iterable[TopicPartition]) -> str | None:
    """Why the replicas are not identical (yet), or None. Compares log ends first, for it is asked often."""
    for key in keys:
        states = {}
        for broker_id, broker in brokers.items():
            partition = broker.services.partitions.find(*key)
            if partition is None:
                return f"{key}: broker {broker_id} has no replica"
            states[broker_id] = partition.log_end_offset, partition.high_watermark
        if len({end for end, _ in states.values()}) > 1 or any(end != hw for end, hw in states.values()):
            return f"{key}: log ends and high watermarks {states}"
    return None


def check_logs(
    world: World, history: History, brokers: dict[int, Broker], keys: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Compare replicas with each other and with the clients' responses. Returns the log end offsets."""
    ends = {}
    for key in keys:
        contents = {broker_id: log_bytes(broker, key) for broker_id, broker in brokers.items()}
        reference_id, reference = next(iter(contents.items()))
        for broker_id, content in contents.items():
            if content != reference:
                world.violation(
                    f"{key}: broker {broker_id} has {_outline(content)}, broker {reference_id} {_outline(reference)}"
                )
                return {}
        ends[key] = check_content(world, history, key, reference)
    return ends


def _outline(content: bytes) -> str:
    parts = [f"{h.base_offset}-{h.last_offset}@{h.partition_leader_epoch}" for _, h in iter_headers(content)]
    return f"{len(content)} bytes [{' '.join(parts[-12:])}]"


def check_content(world: World, history: History, key: TopicPartition, content: bytes) -> int:
    """Compare a log with the clients' responses. Returns its end offset."""
    offset, epoch = 0, -1
    found: dict[int, Item] = {}
    numbers: dict[str, int] = {}
    seen: set[Item] = set()
    given_up = history.given_up[key]
    for position, header in iter_headers(content):
        if header.base_offset != offset:
            world.violation(f"{key}: a batch begins at {header.base_offset}, expected {offset}")
        if header.partition_leader_epoch < epoch:
            world.violation(f"{key}: epoch {header.partition_leader_epoch} at {offset} after epoch {epoch}")
        epoch = header.partition_leader_epoch
        for record in iter_records(content, position):
            if record.offset != offset:
                world.violation(f"{key}: a record at {record.offset}, expected {offset}")
            if record.value is None:
                world.violation(f"{key}: a record without value at {offset}")
                return offset
            item = found[offset] = Item.decode(record.value)
            offset += 1
            if item in seen:
                world.violation(f"{key}: {item} at {offset - 1} is there for the second time")
            seen.add(item)
            if item in given_up:
                continue  # may be there or not, and late
            expected = numbers.get(item.lane, -1) + 1
            while Item(item.lane, expected) in given_up:
                expected += 1
            if item.number != expected:
                what = "out of order" if item.number < expected else "something is missing"
                world.violation(f"{key}: at {offset - 1} {item}, expected number {expected}: {what}")
            numbers[item.lane] = item.number
    for item, at in history.acknowledged[key].items():
        if found.get(at) != item:
            world.violation(f"{key}: {item} was acknowledged at {at} and is lost; there is {found.get(at)}")
    for at, item in history.at[key].items():
        if found.get(at) != item:
            world.violation(f"{key}: {item} was at {at} and is lost; there is {found.get(at)}")
    return offset
