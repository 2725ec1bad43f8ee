"""Bytes of every small file, against ones that Apache Kafka wrote or by hand from the format."""

from __future__ import annotations

import pytest

from barnabas.logdir import MetaProperties
from barnabas.logdir.files.checkpoint import decode_offsets, encode_offsets
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import CorruptFile, InconsistentMeta
from barnabas.logdir.files.index import OffsetIndex, TimeIndex
from barnabas.logdir.files.layout import (
    PartitionDir,
    decode_partition_metadata,
    decode_properties,
    deleted_dir,
    encode_clean_shutdown,
    encode_partition_metadata,
    parse_file_name,
    parse_marked_name,
    parse_partition_dir,
)
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.files.txn_index import AbortedTxn, decode, overlapping
from barnabas.logdir.segments.producers import Producers, Written
from barnabas.logdir.tests.kit import PATH, TOPIC_ID

# Apache Kafka 3.9.1: one committed and one aborted transaction of one record each.
KAFKA_SNAPSHOT = bytes.fromhex(
    "0001967d542b000000010000000000000000000000000001000000000000000200000000000001a1fc0d9e5900000000ffffffffffffffff"
)
KAFKA_TXN_INDEX = bytes.fromhex("00000000000000000000000000000000000200000000000000030000000000000004")
KAFKA_TIME_INDEX = bytes.fromhex("000001a1fc0d9e5900000003")


def test_snapshot_of_apache_kafka() -> None:
    producers = Producers()
    producers.load(KAFKA_SNAPSHOT, "x")
    entry = producers.entries[0]
    assert (entry.epoch, entry.batches, entry.timestamp) == (0, (Written(1, 1, 2, 0, 0x1A1FC0D9E59),), 0x1A1FC0D9E59)
    assert (entry.coordinator_epoch, entry.txn_start) == (0, -1)
    assert producers.encode() == KAFKA_SNAPSHOT


def test_snapshot_keeps_open_transactions_and_the_last_batch() -> None:
    producers = Producers()
    for number in range(3):
        producers.append(8, 1, 10 * number, 9, 10 * number, 5 + number, True, from_client=True)
    producers.append(9, 0, 2**31 - 2, 3, 30, 9, False, from_client=True)
    assert len(producers.encode()) == 10, "nothing is written yet"
    producers.commit(34)
    data = producers.encode()
    assert len(data) == 10 + 2 * 46
    again = Producers()
    again.load(data, "x")
    assert again.entries[8].batches == (Written(20, 29, 29, 9, 7),)
    assert again.open_txns == {0: 8}
    assert again.entries[9].batches == (Written(2**31 - 2, 1, 33, 3, 9),)
    assert again.encode() == data


@pytest.mark.parametrize("where", range(0, len(KAFKA_SNAPSHOT), 3))
def test_a_damaged_snapshot_is_found_out(where: int) -> None:
    spoiled = bytearray(KAFKA_SNAPSHOT)
    spoiled[where] ^= 1
    producers = Producers()
    with pytest.raises(CorruptFile):
        producers.load(bytes(spoiled), "x")
    with pytest.raises(CorruptFile):
        producers.load(KAFKA_SNAPSHOT[:where], "x")
    assert not producers.entries


def test_rollback_and_commit() -> None:
    producers = Producers()
    producers.append(1, 0, 0, 0, 0, 5, False, from_client=True)
    producers.commit(1)
    before = (dict(producers.entries), dict(producers.open_txns), list(producers.completed))
    producers.append(1, 0, 1, 0, 1, 5, True, from_client=True)
    producers.append(2, 0, 0, 0, 2, 5, True, from_client=True)
    producers.end_transaction(1, 0, 0, True, 3, 5)
    producers.rollback()
    assert (producers.entries, producers.open_txns, producers.completed) == before
    producers.append(1, 0, 1, 0, 1, 5, True, from_client=True)
    producers.append(2, 0, 0, 0, 2, 5, True, from_client=True)
    producers.commit(2)
    producers.rollback()
    assert list(producers.entries) == [1]
    assert producers.open_txns == {1: 1}


def test_transaction_index_of_apache_kafka() -> None:
    assert decode(KAFKA_TXN_INDEX, 0) == [AbortedTxn(0, 2, 3, 4)]
    assert AbortedTxn(0, 2, 3, 4).encode() == KAFKA_TXN_INDEX
    assert decode(KAFKA_TXN_INDEX + b"\0" * 33, 0) == [AbortedTxn(0, 2, 3, 4)]
    with pytest.raises(CorruptFile):
        decode(KAFKA_TXN_INDEX, 4)
    with pytest.raises(CorruptFile):
        decode(b"\0\x01" + KAFKA_TXN_INDEX[2:], 0)


def test_overlapping_transactions() -> None:
    entries = [AbortedTxn(1, 2, 5, 3), AbortedTxn(2, 3, 9, 10), AbortedTxn(3, 20, 25, 26)]
    assert overlapping(entries, 0, 3) == (entries[:1], True)
    assert overlapping(entries, 6, 10) == (entries[1:2], True)
    assert overlapping(entries, 10, 20) == ([], True)
    assert overlapping(entries, 10, 40) == (entries[2:], False)


def test_time_index_of_apache_kafka() -> None:
    index = TimeIndex(0, KAFKA_TIME_INDEX)
    assert index.last() == (0x1A1FC0D9E59, 3)
    assert index.encode() == KAFKA_TIME_INDEX
    assert TimeIndex(0, KAFKA_TIME_INDEX + bytes(1200)).encode() == KAFKA_TIME_INDEX


def test_time_index() -> None:
    index = TimeIndex(100)
    assert index.last() == (-1, 100)
    assert index.lookup(5) == (-1, 100)
    for timestamp, offset in ((10, 103), (20, 110), (20, 120), (15, 130), (30, 140)):
        index.add(timestamp, offset)
    assert index.encode().hex() == "000000000000000a0000000300000000000000140000000a000000000000001e00000028"
    assert [index.lookup(t) for t in (9, 10, 19, 20, 29, 30, 99)] == [
        (-1, 100),
        (10, 103),
        (10, 103),
        (20, 110),
        (20, 110),
        (30, 140),
        (30, 140),
    ]
    again = TimeIndex(100, index.encode())
    again.truncate(140)
    assert again.last() == (20, 110)
    again.truncate(110)
    assert again.last() == (10, 103)
    again.truncate(0)
    assert len(again) == 0
    for bad in (bytes(11), index.encode()[12:] + index.encode()[:12]):
        with pytest.raises(CorruptFile):
            TimeIndex(100, bad)
    assert len(TimeIndex(100, bytes(24))) == 0
    # A timestamp that ends in zero bytes, then unused entries.
    assert TimeIndex(0, bytes.fromhex("0000000000000a0000000000") + bytes(120)).last() == (0xA00, 0)


def test_offset_index() -> None:
    index = OffsetIndex(1000)
    assert (index.lookup(5000), index.last()) == (0, (1000, 0))
    for offset, position in ((1004, 4100), (1010, 9000), (2**31 + 999, 2**31 - 1)):
        index.add(offset, position)
    assert index.encode().hex() == "00000004000010040000000a000023287fffffff7fffffff"
    assert [index.lookup(offset) for offset in (1000, 1003, 1004, 1009, 1010, 2**31 + 998, 2**31 + 999)] == [
        0,
        0,
        4100,
        4100,
        9000,
        9000,
        2**31 - 1,
    ]
    again = OffsetIndex(1000, index.encode() + bytes(8000))
    assert (len(again), again.saved, again.stale) == (3, 3, True), "unused entries are to be cut off"
    assert again.last() == (2**31 + 999, 2**31 - 1)
    again.truncate(1010)
    assert again.last() == (1004, 4100)
    again.truncate(1004)
    assert len(again) == 0
    for bad in (bytes(7), index.encode()[16:] + index.encode()[:16], b"\xff" * 8):
        with pytest.raises(CorruptFile):
            OffsetIndex(1000, bad)


def test_offset_checkpoint() -> None:
    offsets = {("events", 1): 17, ("events", 0): 4711, ("a-b.c", 12): 2**62}
    data = encode_offsets(offsets)
    assert data == b"0\n3\na-b.c 12 4611686018427387904\nevents 0 4711\nevents 1 17\n"
    assert decode_offsets(data, "x") == offsets
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"", "x") == {}, "Apache Kafka makes the file before it has anything to write"
    for bad in (b"1\n0\n", b"\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"0\nx\n", b"\xff\xfe"):
        with pytest.raises(CorruptFile):
            decode_offsets(bad, "x")


def test_leader_epochs() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (4, 20)])
    assert not epochs.changed
    assert epochs.encode() == b"0\n3\n1 0\n3 10\n4 20\n"
    epochs.assign(4, 25)
    assert not epochs.changed, "it has begun already"
    epochs.assign(5, 15)
    assert epochs.entries == ((1, 0), (3, 10), (5, 15))
    epochs.assign(2, 30)
    assert epochs.entries == ((1, 0), (2, 30))
    assert [epochs.epoch_for(offset) for offset in (0, 29, 30, 99)] == [1, 1, 2, 2]
    assert LeaderEpochs([(4, 7)]).epoch_for(6) == -1
    epochs = LeaderEpochs([(1, 0), (3, 10), (4, 20)])
    epochs.truncate_from_end(20)
    assert epochs.entries == ((1, 0), (3, 10))
    epochs.truncate_from_start(12)
    assert epochs.entries == ((3, 12),)
    epochs.changed = False
    epochs.truncate_from_start(12)
    epochs.truncate_from_start(5)
    assert not epochs.changed
    disk = MemoryDisk()
    disk.make_dir(PATH)
    assert LeaderEpochs.load(disk, PATH).entries == ()


def test_partition_metadata() -> None:
    # Apache Kafka 3.9.1 wrote this for a topic with the id 5DhbiGy7QOiaWg31HDs8Ig.
    data = b"version: 0\ntopic_id: 5DhbiGy7QOiaWg31HDs8Ig"
    topic_id = bytes.fromhex("e4385b886cbb40e89a5a0df51c3b3c22")
    assert decode_partition_metadata(data, "x") == topic_id
    assert encode_partition_metadata(topic_id) == data
    assert decode_partition_metadata(data + b"\n", "x") == topic_id
    assert decode_partition_metadata(encode_partition_metadata(TOPIC_ID), "x") == TOPIC_ID
    for bad in (b"", b"version: 1\ntopic_id: 5DhbiGy7QOiaWg31HDs8Ig", b"version: 0", b"version: 0\ntopic_id: AAAA"):
        with pytest.raises(CorruptFile):
            decode_partition_metadata(bad, "x")


def test_meta_properties() -> None:
    kafka = b"#\n#Sat Nov 21 06:00:00 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=xL4x\\=Q-aT\n"
    meta = MetaProperties.decode(kafka, "x")
    assert meta == MetaProperties(0, "xL4x=Q-aT", 1)
    assert MetaProperties.decode(meta.encode(), "x") == meta
    kraft = MetaProperties.decode(b"version=1\nnode.id=7\ncluster.id=c\ndirectory.id=d\n", "x")
    assert kraft == MetaProperties(1, "c", 7, "d")
    assert MetaProperties.decode(kraft.encode(), "x") == kraft
    kraft.check("x", cluster_id="c", node_id=7)
    with pytest.raises(InconsistentMeta, match="cluster 'c'"):
        kraft.check("x", cluster_id="other", node_id=7)
    with pytest.raises(InconsistentMeta, match="broker 7"):
        kraft.check("x", cluster_id="c", node_id=8)
    MetaProperties().check("x", cluster_id="c", node_id=8)
    kraft.check("x", cluster_id=None, node_id=7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"version=7\nbroker.id=1\ncluster.id=c\n", "/d/meta.properties has version=7, and known are 0 and 1"),
        (b"version=-1\n", "has version=-1, and known are 0 and 1"),
        (b"version=x\n", "has version=x, which is no whole number"),
        (b"broker.id=x\n", "has broker.id=x, which is no whole number"),
        (b"version=1\nnode.id=1_0\n", "has node.id=1_0, which is no whole number"),
        (b"broker.id=" + b"9" * 5000, "which is no whole number"),
    ],
)
def test_meta_properties_that_cannot_be(text: bytes, why: str) -> None:
    with pytest.raises(InconsistentMeta) as refused:
        MetaProperties.decode(text, "/d/meta.properties")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_java_properties() -> None:
    text = "! note\n  a = 1 \nb: 2\nc 3\nd=x\\\n    y\ne\\ f=\\u0041\\n\\\\\ng\n"
    assert decode_properties(text) == {"a": "1 ", "b": "2", "c": "3", "d": "xy", "e f": "A\n\\", "g": ""}


def test_clean_shutdown_mark() -> None:
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'


def test_names() -> None:
    assert parse_file_name("00000000000000000170.log") == (170, ".log")
    assert parse_file_name("00000000000000000170.timeindex") == (170, ".timeindex")
    assert parse_file_name("170.log") is None
    assert parse_file_name("00000000000000000170.log.swap") is None
    assert parse_marked_name("00000000000000000170.index.cleaned") == (170, ".index", ".cleaned")
    assert parse_partition_dir("a-b-12") == PartitionDir("a-b", 12, "")
    assert parse_partition_dir("t-delete") is None
    hex32 = "0123456789abcdef0123456789abcdef"
    assert parse_partition_dir(f"my.topic-3.{hex32}-delete") == PartitionDir("my.topic", 3, "-delete")
    assert parse_partition_dir(f"my.topic-3.{hex32}-stray") == PartitionDir("my.topic", 3, "-stray")
    for bad in ("lost+found", "-1", "topic-", "topic", "topic-x", "remote-log-index-cache"):
        assert parse_partition_dir(bad) is None, bad
    name = deleted_dir("t" * 249, 12, hex32)
    assert len(name) == 255
    assert name.endswith(f"t-12.{hex32}-delete")
    assert deleted_dir("t", 0, hex32) == f"t-0.{hex32}-delete"
