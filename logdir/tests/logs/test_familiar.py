"""Batches that one look shows to be good are let in without a full check; those that only seem to be are not."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.kproto import compiled
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import Record, build_batch, read_header
from barnabas.kproto.records_uniform import UniformLayout
from barnabas.logdir import LogConfig, PartitionLog
from barnabas.logdir.files.config import LONG_MAX
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.segments.familiar import FAMILIAR_MAX, Familiar, Glance, Scanned, glance
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, put, stored

VALUES = ("a" * 50, "b" * 50, "c" * 50, "d" * 50, "e" * 50)
FURTHER = ({"cleanup_policy": frozenset(["compact"])}, {"message_timestamp_before_max_ms": 5})
"""Settings of topics whose records are under further rules."""


def make(**config: object) -> PartitionLog:
    return open_dir(MemoryDisk()).open_or_create("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]


def resealed(buf: bytearray) -> bytearray:
    struct.pack_into(">I", buf, 17, crc32c(memoryview(buf)[21:]))
    return buf


def test_third_batch_of_a_size_is_known() -> None:
    familiar = Familiar(LogConfig())
    view = memoryview(batch(*VALUES))
    for _ in range(2):
        assert not familiar.knows(view, 5, NOW, NOW)
        familiar.learn(view, 5)
    assert familiar.knows(view, 5, NOW, NOW)
    assert not familiar.knows(view, 5, NOW, NOW + 1), "a wrong max timestamp is corrected by those who look closer"
    assert not familiar.knows(memoryview(batch(*VALUES[:4])), 4, NOW, NOW)
    assert not familiar.knows(view, 4, NOW, NOW)


def known_after(familiar: Glance, *batches: bytes | bytearray) -> list[bool]:
    """What an appender does with them: of each whether it was known."""
    outcomes = []
    for each in batches:
        count = read_header(each).record_count
        outcomes.append(familiar.knows(memoryview(each), count, NOW, NOW))
        if not outcomes[-1]:
            familiar.learn(memoryview(each), count)
    return outcomes


def knows_nothing(way: type[Familiar | Scanned], config: LogConfig) -> None:
    """Check of topics with these settings that all their batches are left to the full check, and after a change too."""
    further, changed = way(config), way(LogConfig())
    changed.reset(config)
    view = memoryview(batch(*VALUES))
    for glanced in (further, changed):
        for _ in range(4):
            assert not glanced.knows(view, 5, NOW, NOW)
            glanced.learn(view, 5)
        glanced.reset(LogConfig())
        assert known_after(glanced, *[bytes(view)] * 3)[-1]


def test_batches_of_several_sizes_are_known() -> None:
    familiar = Familiar(LogConfig())
    sizes = [batch(*["a" * 50] * count) for count in (1, 2, 3, 5)]
    assert not any(known_after(familiar, *(each for each in sizes for _ in range(2))))
    assert all(known_after(familiar, *sizes, *reversed(sizes)))
    others = [batch("b" * size) for size in range(1000, 1000 + FAMILIAR_MAX)]
    assert not any(known_after(familiar, *(each for each in others for _ in range(2))))
    assert all(known_after(familiar, *others))
    assert not any(known_after(familiar, *sizes)), "those of the latest sizes"
    large = batch(*["c" * 50] * 60)
    known_after(familiar, large, large)
    larger = batch(*["d" * 60] * 60)
    known_after(familiar, larger, larger)
    assert known_after(familiar, large, larger) == [False, True], "60 records and 60 are too many"


@pytest.mark.parametrize("kind", ["no layout", "another layout each time"])
def test_learning_in_vain_becomes_rare(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    learn = UniformLayout.learn

    def noted(data: memoryview, count: int) -> UniformLayout | None:
        tried.append(count)
        return learn(data, count)

    monkeypatch.setattr(UniformLayout, "learn", noted)
    familiar = Familiar(LogConfig())
    for turn in range(5000):
        values = ["a" * 10, "b" * 20, "c" * 31]
        if kind != "no layout":
            records = [Record(0, NOW, bytes(turn % 60), bytes(60 - turn % 60), [])]
            known_after(familiar, build_batch(records))
        else:
            known_after(familiar, batch(*values))
    assert 5 <= len(tried) <= 20
    tried.clear()
    simple = batch("x" * 200)
    known_after(familiar, *[simple] * 1200)
    assert known_after(familiar, simple) == [True], "it is over when batches are alike again"
    assert len(tried) == 1


def test_the_compiled_scan_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(glance(LogConfig()), Familiar if compiled.scan is None else Scanned)
    monkeypatch.setattr(compiled, "scan", None)
    assert isinstance(glance(LogConfig()), Familiar)


@pytest.mark.parametrize("config", FURTHER)
def test_topics_with_further_rules_know_nothing(config: dict[str, object]) -> None:
    knows_nothing(Familiar, LogConfig(**config))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_refused_as_in_an_unknown_batch(seed: int) -> None:
    rng = random.Random(seed)
    # Timestamps may be as old as an int64 allows, but for a millisecond: that asks for the full check of each batch.
    known, unknown = make(), make(message_timestamp_before_max_ms=LONG_MAX - 1)
    for log in (known, known, known):
        put(log, *VALUES)
    for _ in range(200):
        buf = batch(*VALUES)
        buf[rng.randrange(61, len(buf))] = rng.randrange(256)
        outcomes = []
        for log in (known, unknown):
            mine = resealed(bytearray(buf))
            try:
                log.append(mine, leader_epoch=0, now_ms=NOW)
                log.write()
                outcomes.append((None, bytes(mine[27:43])))
            except KafkaError as error:
                outcomes.append((error.code, b""))
        assert outcomes[0] == outcomes[1], f"seed {seed}"


def test_future_timestamps_are_refused_of_known_batches_too() -> None:
    log = make(message_timestamp_after_max_ms=1000)
    for _ in range(3):
        put(log, *VALUES)
    with pytest.raises(KafkaError) as refused:
        log.append(batch(*VALUES, timestamp=NOW + 2000), leader_epoch=0, now_ms=NOW)
    assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    assert len(stored(log)) == 3
