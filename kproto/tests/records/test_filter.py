"""Batches without some of their records: what is left is what it was, and says what Apache Kafka's cleaner says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from barnabas.kproto.compression import CODEC_NAMES, CorruptRecords
from barnabas.kproto.records import (
    Record,
    build_batch,
    check_batch,
    iter_records,
    read_header,
    records_data,
)
from barnabas.kproto.records_filter import Keyed, batch_of, empty_batch, keyed_records, legacy_messages, legacy_of
from barnabas.kproto.records_legacy import build_message_set, iter_legacy, iter_messages

NOW = 1_700_000_000_000


def some_records(rng: random.Random, count: int) -> list[Record]:
    return [
        Record(
            timestamp=NOW + rng.choice((0, -5, 70, 100_000, -(2**40))),
            key=rng.choice((None, b"", b"k%d" % number, bytes(200))),
            value=rng.choice((None, b"", b"v" * rng.choice((3, 90, 20_000)))),
            headers=rng.choice(((), (("a", b"1"), ("b", None)))),
        )
        for number in range(count)
    ]


def fields(found: Keyed) -> list[tuple[int, bytes | None, int]]:
    return list(zip(found.deltas, found.keys, found.nulls, strict=True))


def places(found: Keyed) -> list[tuple[int, int]]:
    return list(pairwise(found.starts))


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_some_records_stay_and_nothing_else_changes(seed: int, codec: int) -> None:
    rng = random.Random(seed)
    raw = build_batch(
        some_records(rng, rng.choice((1, 5, 150))),
        base_offset=1000,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=seed % 2 == 0,
        leader_epoch=3,
        log_append_time_ms=NOW + 1 if seed % 3 == 0 else None,
    )
    header = read_header(raw)
    records = list(iter_records(raw))
    data = records_data(raw, 0, header)
    found = keyed_records(data, header.record_count)
    assert [(1000 + delta, key, bool(null)) for delta, key, null in fields(found)] == [
        (record.offset, record.key, record.value is None) for record in records
    ]
    wanted = sorted(rng.sample(range(len(records)), max(len(records) // 2, 1)))
    for horizon in (None, NOW + 5000):
        out = batch_of(header, data, [places(found)[number] for number in wanted], horizon)
        made = check_batch(out)
        assert made.size == len(out)
        assert list(iter_records(out)) == [records[number] for number in wanted]
        assert made.delete_horizon_ms == horizon
        assert made.record_count == len(wanted)
        if horizon is None:
            assert made.base_timestamp == records[wanted[0]].timestamp
        assert made.max_timestamp == max(-1, *(records[number].timestamp for number in wanted))
        same = ("base_offset", "last_offset", "codec", "producer_id", "producer_epoch", "base_sequence")
        for name in (*same, "is_transactional", "partition_leader_epoch", "is_log_append_time", "is_control"):
            assert getattr(made, name) == getattr(header, name), name


def test_a_horizon_is_kept_and_moves_no_timestamp() -> None:
    raw = build_batch([Record(timestamp=NOW + n, key=b"k", value=None) for n in range(3)], delete_horizon_ms=NOW + 9)
    header = read_header(raw)
    data = records_data(raw, 0, header)
    out = batch_of(header, data, places(keyed_records(data, 3))[1:], header.delete_horizon_ms)
    assert check_batch(out).delete_horizon_ms == NOW + 9
    assert [record.timestamp for record in iter_records(out)] == [NOW + 1, NOW + 2]


def test_an_empty_batch_keeps_sequence_and_offsets() -> None:
    raw = build_batch(
        [Record(timestamp=NOW + n, key=b"k") for n in range(3)],
        base_offset=50,
        codec=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
        delete_horizon_ms=NOW,
    )
    out = empty_batch(read_header(raw))
    made = check_batch(out)
    assert len(out) == 61
    assert (made.base_offset, made.last_offset, made.last_sequence, made.record_count) == (50, 52, 42, 0)
    assert (made.codec, made.delete_horizon_ms, made.base_timestamp, made.max_timestamp) == (0, None, -1, NOW + 2)
    assert made.is_transactional
    assert list(iter_records(out)) == []
    assert empty_batch(made) == out


def test_damaged_records_are_refused() -> None:
    """Cut, lengthened, or with any byte changed: `CorruptRecords` or other records, never another exception."""
    raw = build_batch([Record(key=b"key", value=b"v" * 100), Record(key=None, value=None), Record(key=b"", value=b"")])
    data = records_data(raw, 0, read_header(raw))
    for cut in range(len(data)):
        with pytest.raises(CorruptRecords):
            keyed_records(data[:cut], 3)
    for count in (2, 4, -1):
        with pytest.raises(CorruptRecords):
            keyed_records(data, count)
    refused = 0
    for place in range(len(data)):
        for byte in (0, 1, 127, 128, 255):
            try:
                found = keyed_records(data[:place] + bytes((byte,)) + data[place + 1 :], 3)
            except CorruptRecords:
                refused += 1
            else:
                assert all(delta >= 0 for delta in found.deltas)
                assert all(start < end <= len(data) for start, end in places(found))
    assert refused > 20


@pytest.mark.parametrize("seed", range(10))
def test_records_of_one_size_are_read_like_others(seed: int) -> None:
    """The short way for runs of them finds what reading one by one finds, also where something in the run is odd."""
    rng = random.Random(seed)
    for _ in range(12):
        count = rng.choice((1, 4, 5, 63, 64, 65, 66, 130, 300))
        key_size, value_size = rng.choice((0, 1, 8, 63, 64)), rng.choice((0, 20, 90))
        records = [
            Record(
                offset=number,
                timestamp=NOW + rng.choice((0, 0, 1, 63 if rng.random() < 0.9 else 64)),
                key=rng.randbytes(key_size),
                value=rng.randbytes(value_size),
            )
            for number in range(count)
        ]
        if rng.random() < 0.5:
            records = sorted(rng.sample(records, max(count // 2, 1)))
        if rng.random() < 0.5 and not value_size:
            records[len(records) // 2] = records[len(records) // 2]._replace(value=None)
        raw = build_batch(records, keep_offsets=True, last_offset_delta=count)
        header = read_header(raw)
        data = bytearray(records_data(raw, 0, header))
        for _ in range(rng.choice((0, 0, 1, 3))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        raw[61:] = data
        try:
            wanted = [(record.offset, record.key, record.value is None) for record in iter_records(raw)]
        except CorruptRecords:
            continue
        if all(0 <= delta <= 2**31 for delta, *_ in wanted):
            found = keyed_records(bytes(data), header.record_count)
            assert [(delta, key, bool(null)) for delta, key, null in fields(found)] == wanted
            assert found.starts[-1] == len(data)
            for (start, end), record in zip(places(found), wanted, strict=True):
                assert fields(keyed_records(bytes(data[start:end]), 1)) == [record]


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize(("offsets", "key"), [(range(100), b"k000"), ((*range(10), *range(130, 140)), b"k")])
def test_records_of_one_size_with_fields_elsewhere(offsets: Sequence[int], key: bytes, null: bool) -> None:
    """Where the offset delta has a second byte, a shorter value keeps the record as long as the others; that byte may
    even be what the key's length was.
    """
    records = [Record(offset, NOW, key, b"v" * (20 - (offset >= 64))) for offset in offsets]
    records[-3] = records[-3]._replace(key=key + b"0", value=b"v" * 18)
    if null:
        records = [record._replace(value=None, key=key + b"k" * len(record.value or b"")) for record in records]
    raw = build_batch(records, keep_offsets=True)
    found = keyed_records(records_data(raw, 0, read_header(raw)), len(records))
    assert [(delta, key, bool(none)) for delta, key, none in fields(found)] == [
        (record.offset, record.key, null) for record in records
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("append_time", [None, NOW + 7])
def test_messages_stay_in_their_wrapper(magic: int, codec: int, append_time: int | None) -> None:
    records = [Record(offset, NOW + offset, b"k%d" % offset, b"v" * 50) for offset in (10, 11, 13, 17)]
    raw = build_message_set(records, magic=magic, codec=codec, log_append_time_ms=append_time if magic else None)
    opened = legacy_messages(raw)
    assert opened.clean
    assert [message.offset for message in opened.messages] == [10, 11, 13, 17]
    out = legacy_of(opened, opened.messages[1:3])
    assert list(iter_legacy(out)) == list(iter_legacy(raw))[1:3]
    (wrapper,) = iter_messages(out)
    assert (wrapper.magic, wrapper.codec, wrapper.offset) == (magic, codec, 13)
    if magic:
        assert wrapper.timestamp == (append_time or NOW + 13)


def test_a_wrapper_around_another_format_is_to_be_written_anew() -> None:
    """KAFKA-4298."""
    from barnabas.kproto.compression import compress
    from barnabas.kproto.records_legacy import _message

    inner = build_message_set([Record(5, -1, b"k", b"v"), Record(6, -1, b"l", None)], magic=0)
    opened = legacy_messages(_message(6, 1, 1, NOW, None, compress(1, inner)))
    assert not opened.clean
    (wrapper,) = iter_messages(legacy_of(opened, opened.messages))
    assert {message.magic for message in legacy_messages(legacy_of(opened, opened.messages)).messages} == {1}
    assert wrapper.offset == 6


def test_a_single_message() -> None:
    raw = build_message_set([Record(5, NOW, b"k", None)], magic=1)
    opened = legacy_messages(raw)
    assert (opened.codec, opened.messages[0].offset, opened.messages[0].value) == (0, 5, None)
    with pytest.raises(CorruptRecords):
        legacy_messages(raw[:-1])
    with pytest.raises(CorruptRecords):
        legacy_messages(raw[:-1] + b"!")
