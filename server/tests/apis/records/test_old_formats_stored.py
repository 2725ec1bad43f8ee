"""A log that Apache Kafka began before 0.11: messages of formats 0 and 1, plain and wrapped, and batches behind them;
read by every version, looked up by time and offset, recovered, cut, given up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import ListOffsetsRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.kproto.records_legacy import build_message_set, iter_any
from barnabas.logdir import AppendOrigin
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat
from barnabas.server.tests.apis.records.test_produce import topic

NOW = 1_750_000_000_000
APPENDED_AT = NOW + 500

# (format, codec, log-append time, how many records), in the order of the log.
PARTS = (
    (0, 0, None, 2),
    (0, 1, None, 3),
    (0, 3, None, 2),
    (1, 0, None, 2),
    (1, 2, None, 3),
    (1, 3, APPENDED_AT, 2),
    (2, 0, None, 2),
    (1, 1, None, 2),  # the format was set back for a while
    (2, 1, None, 3),
)


class OldLog:
    """`records`: (offset, timestamp, key, value) of all; `starts`: (first offset, last offset, bytes) of what is
    stored.
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes | None, bytes | None]] = []
        self.stored: list[tuple[int, int, bytes]] = []
        offset = 0
        for number, (magic, codec, append_time, count) in enumerate(PARTS):
            records = [
                Record(offset + i, NOW + 10 * number + i, b"k%d" % i, b"v%d" % (offset + i) * 9) for i in range(count)
            ]
            if magic == 2:
                data = bytes(build_batch(records, codec=codec, base_offset=offset, leader_epoch=0))
            else:
                data = build_message_set(records, magic=magic, codec=codec, log_append_time_ms=append_time)
            for record in records:
                timestamp = -1 if magic == 0 else append_time or record.timestamp
                self.records.append((record.offset, timestamp, record.key, record.value))
            if magic < 2 and not codec:
                at = 0
                for i in range(count):
                    size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                    self.stored.append((offset + i, offset + i, data[at : at + size]))
                    at += size
            else:
                self.stored.append((offset, offset + count - 1, data))
            offset += count
        self.end = offset

    def write(self, partition: Partition) -> None:
        for _, _, data in self.stored:
            partition.log.append(bytearray(data), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
        partition.write()


def seen(records: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(each.offset, each.timestamp, each.key, each.value) for each in iter_any(bytes(records))]


async def started(broker: Broker) -> tuple[Partition, OldLog]:
    await topic(broker)
    partition = broker.services.partitions.get("t", 0)
    old = OldLog()
    old.write(partition)
    return partition, old


@pytest.mark.parametrize("version", range(4, 19))
async def test_new_readers_get_it_as_it_is_stored(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        partition, old = await started(broker)
        name: str | bytes = partition.topic_id if version >= 13 else "t"
        for offset in range(old.end) if version == 12 else (0, 4, 13):
            data = flat(await client.ask(fetch((name, 0, offset)), version))[0]
            assert (data.error_code, data.high_watermark) == (0, old.end)
            assert bytes(data.records) == b"".join(piece for _, last, piece in old.stored if last >= offset)


@pytest.mark.parametrize("version", range(4))
async def test_old_readers_get_formats_that_they_know(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        _, old = await started(broker)
        magic = 0 if version < 2 else 1
        for offset in range(old.end):
            found: list[tuple[int, int, bytes | None, bytes | None]] = []
            while not found or found[-1][0] < old.end - 1:
                start = found[-1][0] + 1 if found else offset
                data = flat(await client.ask(fetch(("t", 0, start)), version))[0]
                records = bytes(data.records)
                assert data.error_code == 0
                assert records
                assert records[16] <= magic
                found += [each for each in seen(records) if each[0] >= start]
            # Who knows of times is given those that there are.
            expected = [(at, when if magic else -1, key, value) for at, when, key, value in old.records if at >= offset]
            assert found == expected, offset


async def test_it_is_looked_up_by_time(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        _, old = await started(broker)
        times = sorted({when for _, when, _, _ in old.records if when >= 0})
        for wanted in [0, *times, *(when + 1 for when in times)]:
            exact = next(((when, at) for at, when, _, _ in old.records if when >= wanted), (-1, -1))
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=wanted)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])]
            )
            answer = (await client.ask(request, 7)).topics[0].partitions[0]
            assert (answer.error_code, answer.timestamp, answer.offset) == (0, *exact), wanted


@pytest.mark.parametrize("stop", ["cleanly", "by a kill", "and indexes lost"])
async def test_it_survives_a_restart(stop: str, tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(tmp_path, log_index_interval_bytes="50", log_segment_bytes="600") as broker:
        partition, old = await started(broker)
        assert partition.log.segment_count > 1
    if stop != "cleanly":
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    if stop == "and indexes lost":
        for path in (*(tmp_path / "t-0").glob("*.index"), *(tmp_path / "t-0").glob("*.timeindex")):
            path.unlink()
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        log = broker.services.partitions.get("t", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (0, old.end)
        for offset in range(old.end):
            data = flat(await client.ask(fetch(("t", 0, offset)), 12))[0]
            first = next(piece for _, last, piece in old.stored if last >= offset)
            assert bytes(data.records).startswith(first), offset
        assert log.offset_for_timestamp(APPENDED_AT) == (APPENDED_AT, 12, -1)
        assert log.offset_of_max_timestamp() == (APPENDED_AT, 12, -1)


async def test_a_log_of_old_formats_is_truncated_and_deleted(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_segment_bytes="300") as broker:
        partition, old = await started(broker)
        log = partition.log
        partition.truncate_to(3)  # in the middle of a wrapper, which goes whole
        assert (log.log_end_offset, partition.high_watermark) == (2, 2)
        for _, _, piece in old.stored[2:]:
            log.append(bytearray(piece), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.REPLICATION)
        partition.write()
        assert (log.log_end_offset, log.segment_count > 1) == (old.end, True)
        log.delete_records(10, old.end)
        assert log.retain(NOW, old.end) > 0
        assert log.log_start_offset == 10
        assert log.first_base_offset <= 10
