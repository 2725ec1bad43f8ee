"""Batches that take long are looked through, and compressed, before they are appended: the same comes of it."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.allowance import Allowance, TooMuchWork
from barnabas.kproto.errors import KafkaError
from barnabas.kproto.records import Record, build_batch, iter_records, read_header
from barnabas.logdir import LogConfig, PartitionLog, prepare
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, open_dir, stored

CONFIGS = {
    "as sent": LogConfig(),
    "gzip": LogConfig(compression_type="gzip"),
    "zstd": LogConfig(compression_type="zstd"),
    "uncompressed": LogConfig(compression_type="uncompressed"),
    "compacted": LogConfig(cleanup_policy="compact"),
    "broker's time": LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime"),
    "small": LogConfig(max_message_bytes=900),
}


def make(config: LogConfig) -> PartitionLog:
    return open_dir(MemoryDisk()).open_or_create("t", 0, TOPIC_ID, config)


def some_batch(rng: random.Random) -> bytearray:
    records = [
        Record(0, NOW - rng.randrange(1000), rng.choice([None, b"k", b"k"]), rng.randbytes(rng.randrange(40)))
        for _ in range(rng.choice([1, 5, 30, 100]))
    ]
    if rng.random() < 0.3:
        records = [record._replace(key=b"key") for record in records]
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if rng.random() < 0.5 else {}
    if rng.random() < 0.1:
        # Offsets with gaps.
        records = [record._replace(offset=3 * i) for i, record in enumerate(records)]
        options = {**options, "keep_offsets": True, "last_offset_delta": len(records) - 1}
    batch = build_batch(records, codec=rng.randrange(5), **options)  # type: ignore[arg-type]
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 1, 3])):
            batch[rng.randrange(len(batch)) if rng.random() < 0.5 else rng.randrange(61)] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del batch[-3:]
    return batch


def outcome(log: PartitionLog, buf: memoryview, allowance: Allowance | None) -> object:
    try:
        info = log.append(buf, leader_epoch=0, now_ms=NOW, allowance=allowance)
    except KafkaError as error:
        return error.code, error.message, getattr(error, "record_errors", None)
    log.write()
    return info, [(header, bytes(data)) for header, data in stored(log)]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_comes_of_it(name: str) -> None:
    config = CONFIGS[name]
    for seed in range(150):
        batch = some_batch(random.Random(seed))
        expected = outcome(make(config), memoryview(bytearray(batch)), None)
        log = make(config)
        try:
            prepared = prepare(memoryview(bytearray(batch)), log.config, NOW)
        except KafkaError as error:
            got: object = error.code, error.message, getattr(error, "record_errors", None)
        else:
            got = outcome(log, prepared, Allowance(prepared_for=log.config))
        assert got == expected, f"seed {seed}"


def long_batch(codec: int = 4) -> bytearray:
    return build_batch([Record(0, NOW, b"k", b"v" * (i % 3)) for i in range(15_000)], codec=codec)


def test_too_much_work_changes_nothing() -> None:
    log = make(LogConfig())
    batch = build_batch(
        [Record(0, NOW, b"k", b"v") for i in range(15_000)], codec=4, producer_id=7, producer_epoch=0, base_sequence=0
    )
    before = bytes(batch)
    with pytest.raises(TooMuchWork):
        log.append(batch, leader_epoch=0, now_ms=NOW, allowance=Allowance())
    assert bytes(batch) == before
    assert (log.next_offset, dict(log.producers.entries)) == (0, {})
    # Without an allowance there is no bound, and a prepared one needs none.
    prepared = prepare(memoryview(batch), log.config, NOW)
    assert log.append(prepared, leader_epoch=0, now_ms=NOW, allowance=Allowance(log.config)).last_offset == 14_999
    assert log.append(long_batch(), leader_epoch=0, now_ms=NOW).last_offset == 29_999


@pytest.mark.parametrize("codec", [0, 3])
def test_compressing_is_too_much_work_beyond_some_size(codec: int) -> None:
    log = make(LogConfig(compression_type="gzip"))
    rng = random.Random(codec)
    for size, fits in ((40_000, True), (80_000, False)):
        batch = build_batch([Record(0, NOW, None, rng.randbytes(size // 2) + bytes(size // 2))], codec=codec)
        before = bytes(batch)
        if fits:
            log.append(batch, leader_epoch=0, now_ms=NOW, allowance=Allowance())
            continue
        with pytest.raises(TooMuchWork) as caught:
            log.append(batch, leader_epoch=0, now_ms=NOW, allowance=Allowance())
        assert not caught.value.is_for_now
        assert bytes(batch) == before
        prepared = prepare(memoryview(batch), log.config, NOW)
        assert read_header(prepared).codec == 1
        log.append(prepared, leader_epoch=0, now_ms=NOW, allowance=Allowance(log.config))
    log.write()
    assert [header.codec for header, _ in stored(log)] == [1, 1]


def test_prepared_for_other_settings() -> None:
    log = make(LogConfig())
    prepared = prepare(memoryview(long_batch()), log.config, NOW)
    old, log.config = log.config, LogConfig(compression_type="gzip")
    with pytest.raises(TooMuchWork):
        log.append(prepared, leader_epoch=0, now_ms=NOW, allowance=Allowance(old))
    again = prepare(prepared, log.config, NOW)
    log.append(again, leader_epoch=0, now_ms=NOW, allowance=Allowance(log.config))
    log.write()
    ((header, data),) = stored(log)
    assert header.codec == 1
    assert [record.value for record in iter_records(data)] == [b"v" * (i % 3) for i in range(15_000)]


def test_small_records_are_not_taken_apart_to_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take a hundred times their bytes."""
    monkeypatch.setattr("barnabas.logdir.segments.incoming.rebuild_batch", None)
    log = make(LogConfig(compression_type="gzip"))
    prepared = prepare(memoryview(long_batch()), log.config, NOW)
    assert read_header(prepared).codec == 1
    assert len(list(iter_records(prepared))) == 15_000
