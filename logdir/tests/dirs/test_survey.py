"""What a log directory says about itself before its logs are opened: partitions, topic ids, KRaft's metadata."""

from __future__ import annotations

import pytest

from barnabas.kproto.records import CorruptRecords, Record, build_batch, build_control_batch
from barnabas.logdir.dirs.survey import kraft_metadata, log_values, partitions_in, topic_id_of
from barnabas.logdir.files.memory_disk import MemoryDisk

RED, BLUE = bytes([1]) * 16, bytes([2]) * 16


def text(value: str | None) -> bytes:
    """A compact string of fewer than 127 bytes."""
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def metadata_record(kind: int, *fields: bytes) -> bytes:
    return bytes([1, kind, 0]) + b"".join(fields) + b"\0"


def topic(name: str, topic_id: bytes) -> bytes:
    return metadata_record(2, text(name), topic_id)


def partition(index: int, topic_id: bytes) -> bytes:
    return metadata_record(3, index.to_bytes(4, "big"), topic_id, b"\x02\0\0\0\x01")


def config(name: str, key: str, value: str | None, kind: int = 2) -> bytes:
    return metadata_record(4, bytes([kind]), text(name), text(key), text(value))


def removed(topic_id: bytes) -> bytes:
    return metadata_record(9, topic_id)


def producer_ids(first_free: int) -> bytes:
    return metadata_record(15, bytes(4), bytes(8), first_free.to_bytes(8, "big"))


def batch(base_offset: int, *values: bytes, codec: int = 0) -> bytes:
    return bytes(build_batch([Record(value=value) for value in values], base_offset=base_offset, codec=codec))


def disk_with(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    made = set()
    for path, data in files.items():
        above = ""
        for name in path.split("/")[1:-1]:
            above += f"/{name}"
            if above not in made:
                disk.make_dir(above)
                made.add(above)
        fd = disk.open(path, create=True)
        disk.pwritev(fd, [data], 0)
        disk.close(fd)
    return disk


def test_partitions_and_their_topic_ids() -> None:
    disk = disk_with(
        {
            "/d/meta.properties": b"version=1\n",
            "/d/a-0/partition.metadata": b"version: 0\ntopic_id: AQEBAQEBAQEBAQEBAQEBAQ",
            "/d/a-b-11/partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "/d/c-0/00000000000000000000.log": b"",
            "/d/c-1.0123456789abcdef0123456789abcdef-delete/x": b"",
            "/d/c-1.0123456789abcdef0123456789abcdef-stray/x": b"",
            "/d/__cluster_metadata-0/x": b"",
            "/d/nothing/x": b"",
        }
    )
    assert partitions_in(disk, "/d") == [("a", 0), ("a-b", 11), ("c", 0)]
    assert topic_id_of(disk, "/d", "a", 0) == RED
    assert topic_id_of(disk, "/d", "a-b", 11) is None
    assert topic_id_of(disk, "/d", "c", 0) is None


def test_metadata_is_the_latest_snapshot_and_what_follows() -> None:
    place = "/d/__cluster_metadata-0"
    disk = disk_with(
        {
            f"{place}/00000000000000000003-0000000001.checkpoint": b"no longer looked at",
            f"{place}/00000000000000000010-0000000002.checkpoint": batch(
                0, topic("red", RED), partition(0, RED), partition(2, RED), config("red", "retention.ms", "5"), codec=1
            )
            + batch(4, config("red", "segment.ms", "6"), config("1", "log.retention.ms", "9", kind=4), producer_ids(3)),
            # An offset below the snapshot's end: it holds that already, and things that were true before it.
            f"{place}/00000000000000000000.log": batch(8, config("red", "retention.ms", "0"), removed(RED))
            + bytes(
                build_control_batch(
                    producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=0, base_offset=10
                )
            )
            + batch(
                11, config("red", "retention.ms", None), partition(1, RED), topic("blue", BLUE), bytes([1, 7, 0, 9])
            ),
            f"{place}/00000000000000000015.log": batch(15, partition(0, BLUE), producer_ids(2000))
            + batch(17, topic("torn", bytes(16)))[:-3],
        }
    )
    found = kraft_metadata(disk, "/d")
    assert found is not None
    red, blue = found.topics["red"], found.topics["blue"]
    assert (red.topic_id, red.partitions, red.config) == (RED, 3, {"segment.ms": "6"})
    assert (blue.topic_id, blue.partitions, blue.config) == (BLUE, 1, {})
    assert found.next_producer_id == 2000
    assert set(found.topics) == {"red", "blue"}


def test_a_topic_made_again_has_none_of_the_old_settings() -> None:
    log = batch(0, topic("t", RED), config("t", "retention.ms", "5"), removed(RED), topic("t", BLUE))
    found = kraft_metadata(disk_with({"/d/__cluster_metadata-0/00000000000000000000.log": log}), "/d")
    assert found is not None
    assert (found.topics["t"].topic_id, found.topics["t"].config) == (BLUE, {})


def test_no_metadata() -> None:
    assert kraft_metadata(disk_with({"/d/x-0/y": b""}), "/d") is None


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02\x00\x05ab", b"\x01\x03\x00\x00", b"\x01\x02\x00\x03\xff\xff"]
)
def test_metadata_that_cannot_be_read_is_said(value: bytes) -> None:
    disk = disk_with({"/d/__cluster_metadata-0/00000000000000000000.log": batch(0, value)})
    with pytest.raises(CorruptRecords, match="metadata record"):
        kraft_metadata(disk, "/d")


def test_values_of_a_log() -> None:
    disk = disk_with(
        {
            "/d/t-0/00000000000000000002.log": batch(2, b"c"),
            "/d/t-0/00000000000000000000.log": batch(0, b"a", b"b"),
            "/d/t-0/00000000000000000000.log.deleted": batch(0, b"x"),
        }
    )
    assert list(log_values(disk, "/d/t-0")) == [b"a", b"b", b"c"]
