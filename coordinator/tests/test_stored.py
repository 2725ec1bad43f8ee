"""Records of `__consumer_offsets`: the bytes of Apache Kafka, in both directions."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.coordinator.stored import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    OffsetRecords,
    StoredGroup,
    StoredMember,
    group_record,
    offset_record,
    parse,
)
from barnabas.kproto import DecodeError, EncodeError
from barnabas.kproto.stored import OffsetCommitKey, OffsetCommitValue, decode_versioned, encode_versioned

# Captured from Apache Kafka 3.9.1: a consumer of group g1 committed offset 1 of tt-0.
OFFSET_KEY = bytes.fromhex("0001 0002 6731 0002 7474 00000000")
OFFSET_VALUE = bytes.fromhex("0003 0000000000000001 00000000 0000 000001a1fc0da376")
OFFSET = CommittedOffset(1, 0, "", 0x1A1FC0DA376)

STORED = StoredGroup(
    "consumer",
    7,
    "range",
    "c-1",
    1_700_000_000_000,
    (
        StoredMember("c-1", None, "c", "/127.0.0.1", 60_000, 10_000, b"sub", b"asg"),
        StoredMember("i-2", "i", "c", "/10.0.0.1", 300_000, 45_000, b"", b""),
    ),
)


def test_an_offset_commit_is_byte_for_byte_that_of_apache_kafka() -> None:
    meaning = OffsetRecord("g1", "tt", 0, OFFSET)
    assert offset_record("g1", "tt", 0, OFFSET) == (OFFSET_KEY, OFFSET_VALUE, meaning)
    assert parse(OFFSET_KEY, OFFSET_VALUE) == meaning


def test_a_tombstone_has_the_key_of_the_commit() -> None:
    meaning = OffsetRecord("g1", "tt", 0, None)
    assert offset_record("g1", "tt", 0, None) == (OFFSET_KEY, None, meaning)
    assert parse(OFFSET_KEY, None) == meaning


def test_a_commit_with_its_own_expiry_is_stored_in_version_1() -> None:
    committed = CommittedOffset(5, 3, "m", 1000, 2000)
    record = offset_record("g1", "tt", 0, committed)
    assert record.value == bytes.fromhex("0001 0000000000000005 0001 6d 00000000000003e8 00000000000007d0")
    # That version has no leader epoch.
    assert parse(record.key, record.value) == OffsetRecord("g1", "tt", 0, committed._replace(leader_epoch=-1))
    assert record.meaning is None


@pytest.mark.parametrize("key_version", [0, 1])
@pytest.mark.parametrize(
    ("value", "committed"),
    [
        ("0000 0000000000000009 0001 6d 00000000000003e8", CommittedOffset(9, -1, "m", 1000)),
        ("0001 0000000000000009 0000 00000000000003e8 ffffffffffffffff", CommittedOffset(9, -1, "", 1000)),
        ("0002 0000000000000009 0001 6d 00000000000003e8", CommittedOffset(9, -1, "m", 1000)),
        ("0003 0000000000000009 00000004 0001 6d 00000000000003e8", CommittedOffset(9, 4, "m", 1000)),
        ("0004 0000000000000009 00000004 02 6d 00000000000003e8 00", CommittedOffset(9, 4, "m", 1000)),
    ],
)
def test_all_versions_of_offset_values_are_read(key_version: int, value: str, committed: CommittedOffset) -> None:
    key = key_version.to_bytes(2, "big") + OFFSET_KEY[2:]
    assert parse(key, bytes.fromhex(value)) == OffsetRecord("g1", "tt", 0, committed)


def test_a_group_is_stored_in_version_3() -> None:
    record = group_record("g1", STORED)
    assert record.key == bytes.fromhex("0002 0002 6731")
    assert record.value is not None
    head = "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 632d31 0000018bcfe56800 00000002"
    first = "0003 632d31 ffff 0001 63 000a 2f3132372e302e302e31 0000ea60 00002710 00000003 737562 00000003 617367"
    assert record.value.startswith(bytes.fromhex(head + first))
    assert parse(*record[:2]) == GroupRecord("g1", STORED)


# Captured from Apache Kafka 4.3.1: a console consumer, alone in its group, and its commit.
LIVE_ID = "console-consumer-50bbf626-7b4b-40ea-9523-d41d309ccb65"
LIVE_VALUE = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000001 0005 72616e6765"
    "0035 636f6e736f6c652d636f6e73756d65722d35306262663632362d376234622d343065612d393532332d643431643330396363623635"
    "000001a1fd0cbea3 00000001"
    "0035 636f6e736f6c652d636f6e73756d65722d35306262663632362d376234622d343065612d393532332d643431643330396363623635"
    "ffff 0010 636f6e736f6c652d636f6e73756d6572 000a 2f3132372e302e302e31 000493e0 0000afc8"
    "00000017 0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff"
    "00000019 0003 00000001 0001 74 00000002 00000000 00000001 ffffffff"
)


def test_a_live_group_is_byte_for_byte_that_of_apache_kafka() -> None:
    key = bytes.fromhex("0002 0005 676c697665")
    record = parse(key, LIVE_VALUE)
    assert isinstance(record, GroupRecord)
    assert record.stored is not None
    assert (record.group_id, record.stored.generation, record.stored.leader) == ("glive", 1, LIVE_ID)
    (member,) = record.stored.members
    assert (member.client_host, member.rebalance_timeout_ms, member.session_timeout_ms) == ("/127.0.0.1", 300000, 45000)
    assert group_record("glive", record.stored) == (key, LIVE_VALUE, None)


def test_a_commit_of_apache_kafka_4_carries_the_topic_id_in_a_tag() -> None:
    key = bytes.fromhex("0001 0005 676c697665 0001 74 00000001")
    value = "0004 0000000000000032 00000000 01 000001a1fd0cc0a8 01 00 10 4afd3aa75a934e9cab12be581b936a8f"
    committed = CommittedOffset(50, 0, "", 0x1A1FD0CC0A8)
    assert parse(key, bytes.fromhex(value)) == OffsetRecord("glive", "t", 1, committed)


def test_the_record_that_apache_kafka_4_opens_a_group_with_is_an_empty_group() -> None:
    value = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fd0cbe9f 00000000")
    stored = StoredGroup("", 0, None, None, 0x1A1FD0CBE9F, ())
    assert parse(bytes.fromhex("0002 0005 676c697665"), value) == GroupRecord("glive", stored)


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    stored = StoredGroup("consumer", 8, None, None, 1000, ())
    record = group_record("g1", stored)
    assert record.value == bytes.fromhex("0003 0008 636f6e73756d6572 00000008 ffff ffff 00000000000003e8 00000000")
    assert parse(*record[:2]) == GroupRecord("g1", stored)
    assert parse(record.key, None) == GroupRecord("g1", None)


_MEMBER = "0003 632d31 {instance} 0001 63 0001 68 {rebalance} 00002710 00000003 737562 00000003 617367"


@pytest.mark.parametrize(
    ("version", "value", "state_time_ms", "rebalance_ms", "instance"),
    [
        (0, _MEMBER.format(instance="", rebalance=""), -1, 10_000, None),
        (1, _MEMBER.format(instance="", rebalance="0000ea60"), -1, 60_000, None),
        (2, _MEMBER.format(instance="", rebalance="0000ea60"), 1000, 60_000, None),
        (3, _MEMBER.format(instance="0001 69", rebalance="0000ea60"), 1000, 60_000, "i"),
    ],
)
def test_older_versions_of_group_values_are_read(
    version: int, value: str, state_time_ms: int, rebalance_ms: int, instance: str | None
) -> None:
    time = "00000000000003e8" if version >= 2 else ""
    head = f"{version:04x} 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 632d31 {time} 00000001"
    member = StoredMember("c-1", instance, "c", "h", rebalance_ms, 10_000, b"sub", b"asg")
    stored = StoredGroup("consumer", 7, "range", "c-1", state_time_ms, (member,))
    assert parse(group_record("g1", None).key, bytes.fromhex(head + value)) == GroupRecord("g1", stored)


@pytest.mark.parametrize("kind", [3, 5, 8, 11, 16, 23, 99])
def test_records_of_other_kinds_of_groups_are_left_alone(kind: int) -> None:
    assert parse(kind.to_bytes(2, "big") + b"whatever", b"x") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", None),
        (OFFSET_KEY[:-1], OFFSET_VALUE),
        (OFFSET_KEY, OFFSET_VALUE[:-1]),
        (OFFSET_KEY, b"\x00\x63" + OFFSET_VALUE[2:]),
        (OFFSET_KEY, b""),
    ],
)
def test_what_cannot_be_read_raises(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        parse(key, value)


def by_schema(key: bytes, value: bytes | None) -> OffsetRecord:
    """What the layouts of kproto make of it."""
    of = decode_versioned(OffsetCommitKey, key)[1]
    if value is None:
        return OffsetRecord(of.group, of.topic, of.partition, None)
    version, told = decode_versioned(OffsetCommitValue, value)
    assert version == 3
    committed = CommittedOffset(told.offset, told.leader_epoch, told.metadata, told.commit_timestamp)
    return OffsetRecord(of.group, of.topic, of.partition, committed)


def test_what_is_written_and_read_by_hand_is_what_the_schema_says() -> None:
    """Also for damaged ones: the same value, or no value."""
    rng = Random(1)
    for _ in range(300):
        texts = ["".join(rng.choices("abc-ü€😀", k=rng.choice((0, 1, 9, 200)))) for _ in range(3)]
        committed = CommittedOffset(rng.getrandbits(63), rng.randint(-1, 1 << 31 - 1), texts[2], rng.getrandbits(63))
        key, value, meaning = offset_record(texts[0], texts[1], rng.getrandbits(31), committed)
        assert value is not None
        assert parse(key, value) == by_schema(key, value) == meaning
        assert parse(memoryview(key), memoryview(value)) == by_schema(key, value)
        assert encode_versioned(decode_versioned(OffsetCommitKey, key)[1], 1) == key
        assert encode_versioned(decode_versioned(OffsetCommitValue, value)[1], 3) == value
        at, other = rng.randrange(2, len(key)), rng.randrange(256)
        bad_key = rng.choice((key[:at], key[:at] + bytes([other]) + key[at + 1 :]))
        at = rng.randrange(2, len(value))
        bad_value = rng.choice((value[:at], value[:at] + bytes([other]) + value[at + 1 :]))
        for pair in ((bad_key, value), (key, bad_value), (bad_key, None)):
            try:
                expected = by_schema(*pair)
            except DecodeError:
                with pytest.raises(DecodeError):
                    parse(*pair)
            else:
                assert parse(*pair) == expected


def test_records_of_one_commit_are_those_made_one_by_one() -> None:
    records = OffsetRecords("g")
    for topic, partition in (("t", 0), ("t", 1), ("u", 1), ("t", 2), ("t", 2)):
        for committed in (OFFSET, None, OFFSET._replace(expire_time_ms=9)):
            assert records.record(topic, partition, committed) == offset_record("g", topic, partition, committed)


def test_names_that_no_record_holds_are_refused() -> None:
    with pytest.raises(EncodeError):
        offset_record("g" * 32768, "t", 0, None)
    with pytest.raises(EncodeError):
        offset_record("g", "t" * 32768, 0, None)
    with pytest.raises(EncodeError):
        offset_record("g", "t", 0, CommittedOffset(1, 1, "m" * 32768, 1))
