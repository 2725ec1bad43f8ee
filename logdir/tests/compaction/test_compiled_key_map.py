"""The compiled map of compaction against its twin: the same keys noted, the same records kept, the same bytes written,
and None wherever the twin refuses.

Compared on what hypothesis makes (good records, damaged ones, any bytes), on all codecs, on maps that are full in the
middle of a batch, and on whole runs over logs. The examples are the same in each run; BARNABAS_TWIN_EXAMPLES says how
many hypothesis makes of each kind.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.kproto import compiled
from barnabas.kproto.compression import CorruptRecords
from barnabas.kproto.records import (
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    iter_records,
    read_header,
    records_data,
)
from barnabas.kproto.records_filter import batch_around
from barnabas.kproto.records_legacy import build_message_set
from barnabas.kproto.varint import varint
from barnabas.logdir.compaction import key_map
from barnabas.logdir.compaction.key_map import KeyMap, _keep, _note
from barnabas.logdir.compaction.offset_map import OffsetMap, capacity
from barnabas.logdir.compaction.plan import CompactionLimits
from barnabas.logdir.tests.compaction.compaction_kit import NOW, Compacted

examples = settings(
    max_examples=int(os.environ.get("BARNABAS_TWIN_EXAMPLES", "300")), derandomize=True, database=None, deadline=None
)
pytestmark = pytest.mark.skipif(
    compiled.KeyMap is None, reason=f"barnabas-native is not used: {compiled.CHOICE.why_not}"
)
LARGE = 1 << 16
SECRET = bytes(range(16))
LAST = 2**63 - 1


class Both:
    """A map of each kind, given the same."""

    def __init__(self, memory: int = LARGE) -> None:
        assert compiled.KeyMap is not None
        self.native = compiled.KeyMap(*capacity(memory, 0.9), SECRET)
        self.pure = OffsetMap(memory, 0.9, SECRET)

    def note(self, data: bytes, count: int, base: int = 0, first: int = 0) -> bool:
        """Whether the records are good, by both."""
        before = len(self.native)
        found = self.native.note(data, count, base, first)
        try:
            expected = _note(self.pure, data, count, base, first)
        except CorruptRecords:
            assert found is None
            assert len(self.native) == before
            return False
        if found is None:  # good to the twin only
            assert len(self.native) == before
            found = _note(self.native, data, count, base, first)
        assert found == expected
        assert len(self.native) == len(self.pure)
        return True

    def keep(
        self, header: BatchHeader, data: bytes, latest: int = LAST, past_horizon: bool = False, new: int = NOW
    ) -> bool:
        """Whether the records are good, by both."""
        append_time = header.max_timestamp if header.is_log_append_time else None
        batch = header.record_count, header.base_offset, header.base_timestamp, append_time, header.delete_horizon_ms
        found = self.native.keep(data, batch, (latest, past_horizon, new))
        try:
            expected = _keep(self.pure, header, data, latest, past_horizon, new)
        except CorruptRecords:
            assert found is None
            return False
        if found is None:
            return _keep(self.native, header, data, latest, past_horizon, new) == expected
        assert found == expected
        return True

    def known(self, keys: list[bytes | None]) -> list[int]:
        found = self.native.get(keys)
        assert found == self.pure.get(keys)
        return list(found)


# ---- what hypothesis makes

NUMBERS = (-1, 0, 1, 63, 64, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 127, 128, 5)
TIMES = (0, 1, -1, NOW, 2**63 - 1, -(2**63), 2**62)


class Dice:
    """Choices made by bytes, of which hypothesis finds the simplest that show a fault: zeros choose the usual."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, most: int) -> int:
        return next(self._bytes, 0) % most

    def rarely(self) -> bool:
        return self.below(12) == 11

    def number(self, usual: int) -> int:
        return NUMBERS[self.below(len(NUMBERS))] if self.rarely() else usual

    def varint(self, value: int, bytes_max: int) -> bytes:
        """At times with needless bytes at its end, or bits beyond its width."""
        data = varint(value)
        while self.rarely():
            data = data[:-1] + bytes([data[-1] | 128, 0x70 if len(data) == bytes_max - 1 else 0])
        return data

    def field(self, usual: bytes | None) -> bytes:
        length = -1 if usual is None else len(usual)
        return self.varint(self.number(length), 5) + (usual or b"")

    def record(self, delta: int) -> bytes:
        """One of few keys, so that some come twice; attributes that are not 0 are lost when it is written again."""
        key = None if self.rarely() else b"k%d" % self.below(9)
        value = None if self.below(4) == 3 else b"v" * self.below(70)
        body = bytes([7 if self.rarely() else 0]) + self.varint(self.number(self.below(90) - 5), 10)
        body += self.varint(self.number(delta), 5) + self.field(key) + self.field(value) + b"\0"
        return self.varint(self.number(len(body)), 5) + body

    def records(self) -> tuple[bytes, int]:
        """Bytes, and how many records they should be; behind odd ones there may be many alike."""
        count, delta, data = self.below(8), 0, b""
        for _ in range(count):
            data += self.record(delta)
            delta += 1 + self.below(3)
        alike, size, steps, gap = self.below(150), self.below(90), self.below(3), 1 + self.below(2)
        for number in range(alike):
            key = b"%03d" % (number * (1 + 7 * steps) % 100)
            value = varint(-1) if steps and number % 40 == 39 else varint(size) + b"v" * size
            body = b"\0" + varint(number * steps % 70) + varint(delta) + varint(len(key)) + key + value + b"\0"
            data += varint(len(body)) + body
            delta += gap
        return data, count + alike

    def header(self, count: int) -> BatchHeader:
        made = read_header(build_batch([Record(timestamp=NOW)]))
        attributes = (8 if self.rarely() else 0) | (0x40 if self.below(4) == 3 else 0)
        times = [TIMES[self.below(len(TIMES))] if self.rarely() else NOW for _ in range(2)]
        base = self.number(50)
        return made._replace(
            base_offset=base, attributes=attributes, base_timestamp=times[0], max_timestamp=times[1], record_count=count
        )


@examples
@example(b"\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", b"\1", 0, False)
@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(-2, 200), st.booleans())
def test_records(noted: bytes, looked_at: bytes, first: int, past_horizon: bool) -> None:
    both = Both()
    data, count = Dice(noted).records()
    both.note(data, count, 60, first)
    both.known([b"k%d" % number for number in range(9)])
    dice = Dice(looked_at)
    header = dice.header(0)
    data, count = dice.records()
    header = header._replace(record_count=count)
    for latest in (LAST, min(header.base_offset + first, LAST), -1):
        both.keep(header, data, latest, past_horizon, TIMES[dice.below(len(TIMES))])


@examples
@given(st.binary(max_size=200), st.integers(0, 60))
def test_no_room_in_the_middle(choices: bytes, room: int) -> None:
    both = Both(24 * 4 * (room + 2) // 3)
    dice = Dice(choices)
    for number in range(4):
        both.note(*dice.records(), 1000 * number, 20)
        both.known([b"k%d" % number for number in range(9)] + [b"%03d" % number for number in range(100)] + [None])
    data, count = dice.records()
    both.keep(dice.header(count), data, 2040)


@examples
@given(st.binary(max_size=150), st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3), st.binary(max_size=3))))
def test_damaged_records(choices: bytes, damage: list[tuple[int, int, bytes]]) -> None:
    dice = Dice(choices)
    data, count = dice.records()
    for at, gone, new in damage:
        at %= max(len(data), 1)
        data = data[:at] + new + data[at + gone :]
    both = Both()
    for wrong in (0, 1, -1):
        both.note(data, count + wrong)
        both.keep(dice.header(count + wrong), data)


@examples
@given(st.binary(max_size=80), st.integers(-2, 12))
def test_any_bytes(data: bytes, count: int) -> None:
    both = Both()
    both.note(data, count)
    both.keep(Dice(data).header(count), data)


def test_what_is_made_is_good_at_times() -> None:
    """The test of the tests."""
    rng = random.Random(3)
    good = left = 0
    for _ in range(300):
        both = Both()
        data, count = Dice(rng.randbytes(rng.randrange(150))).records()
        good += both.note(data, count)
        header = Dice(b"").header(count)
        left += both.native.keep(data, (count, 50, NOW, None, None), (LAST, False, NOW)) is not None
        assert both.keep(header, data) == (both.native.keep(data, (count, 0, 0, None, None), (0, False, 0)) is not None)
    assert 50 < good < 290
    assert 50 < left < 290


# ---- real batches


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_batches(seed: int, codec: int) -> None:
    """What is written is a good batch of some of the records, whichever wrote it."""
    rng = random.Random(seed * 5 + codec)
    both = Both()
    for number in range(12):
        records = [
            Record(
                timestamp=NOW + rng.choice((0, 0, 1, -5, 100_000)),
                key=None if rng.random() < 0.03 else b"key-%d" % rng.randrange(300),
                value=None if rng.random() < 0.1 else rng.randbytes(rng.randrange(200)),
                headers=(("a", b"1"),) if rng.random() < 0.1 else (),
            )
            for _ in range(rng.choice((1, 5, 200)))
        ]
        raw = build_batch(
            records,
            base_offset=1000 * number,
            codec=codec,
            log_append_time_ms=NOW + 1 if rng.random() < 0.2 else None,
            delete_horizon_ms=NOW if rng.random() < 0.2 else None,
        )
        header = read_header(raw)
        data = records_data(raw, 0, header)
        assert both.note(data, len(records), header.base_offset, 500)
        for latest in (LAST, 1000 * number + 3, 0):
            for past_horizon in (False, True):
                assert both.keep(header, data, latest, past_horizon)
        batch = header.record_count, header.base_offset, header.base_timestamp, None, header.delete_horizon_ms
        kept, _, _, written = both.native.keep(data, batch, (LAST, False, NOW + 9))
        if written is not None and not header.is_log_append_time:
            out = batch_around(header, written, kept, header.delete_horizon_ms)
            assert check_batch(out).record_count == kept
            assert set(iter_records(out)) <= set(iter_records(raw))


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 2, 2**31 - 1])
def test_numbers_at_the_ends_of_their_width(count: int) -> None:
    largest = varint(2**31 - 1)
    for data in (
        b"",
        b"\x10\0\0\0\x02k\x02v\0",
        largest + b"\0\0\0\x01\x01" + largest,
        largest + b"\0\0\0" + largest,
        b"\x12\0\0" + largest + b"\x02k\x01\0",
        varint(-(2**31)) + b"\0\0\0\x01\x01\0",
        b"\x80" * 300,
        b"\xff" * 300,
    ):
        for base in (0, -(2**63), -5):
            both = Both()
            both.note(data, count, base, base)
            both.keep(Dice(b"").header(count)._replace(base_offset=base), data)
        both = Both()
        assert both.native.note(data, count, 2**63 - 1, 0) in (None, (True, 2**63 - 1), (True, None))


# ---- whole runs


def through(monkeypatch: pytest.MonkeyPatch, pure: bool, seed: int) -> tuple[Any, ...]:
    """A log made by `seed` after rounds of compaction: its bytes, what the rounds said, and the files' names."""
    with monkeypatch.context() as patch:
        if pure:
            patch.setattr(compiled, "KeyMap", None)
        rng = random.Random(seed)
        log = Compacted(segment_bytes=rng.choice((6000, 20_000)), cleanup_policy=frozenset({"delete"}))
        said = []
        sequence = {1: 0, 11: 0, 12: 0}
        for _ in range(3):
            for _ in range(40):
                log.clock.now_ms += rng.randint(0, 300)
                what = rng.random()
                if what < 0.1:
                    end = log.log.log_end_offset
                    old = [Record(end + n, NOW, some_key(rng), some_value(rng)) for n in range(rng.randint(1, 3))]
                    log.put_as_it_is(build_message_set(old, magic=rng.randint(0, 1), codec=rng.choice((0, 1, 3))))
                elif what < 0.2:
                    log.end_transaction(rng.choice((11, 12)), commit=rng.random() < 0.5)
                else:
                    records = [(some_key(rng), some_value(rng)) for _ in range(rng.choice((1, 3, 40)))]
                    producer = rng.choice((-1, -1, *sequence))
                    options = {}
                    if producer > 0:
                        options = {
                            "producer_id": producer,
                            "producer_epoch": 0,
                            "base_sequence": sequence[producer],
                            "transactional": producer > 10,
                        }
                        sequence[producer] += len(records)
                    log.put(*records, codec=rng.choice((0, 0, 1, 2, 3, 4)), **options)
            for producer in (11, 12):
                log.end_transaction(producer, commit=True)
            log.roll()
            log.log.config = log.config = replace(log.config, cleanup_policy=frozenset({"compact"}))
            run = log.clean(CompactionLimits(rng.choice((24 * 16, 24 * 200, 1 << 20)), 0.9, rng.choice((1, 1 << 16))))
            assert (run._map._compiled is None) == pure
            said.append((run.end_offset, run.stats))
            log.clock.now_ms += rng.choice((0, 700, 1500))
            log.log.config = log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
        return log.raw(), said, log.names()


def some_key(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.05 else b"k%d" % rng.randrange(60)


def some_value(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.15 else rng.randbytes(rng.choice((0, 20, 20, 90)))


@pytest.mark.parametrize("seed", range(12))
def test_whole_runs_write_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native, pure = (through(monkeypatch, pure, seed) for pure in (False, True))
    assert native == pure, f"seed {seed}"
    assert any(stats.records_kept < stats.records_read for _, stats in native[1]), f"seed {seed}"


# ---- what is not small, and what is not taken


def test_large_data_release_the_interpreter() -> None:
    rng = random.Random(5)
    batch = build_batch([Record(0, NOW, b"%d" % (i % 900), rng.randbytes(200 + i % 99)) for i in range(5000)])
    header = read_header(batch)
    data = records_data(batch, 0, header)
    assert len(data) > 1 << 20
    both = [Both() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda one: one.note(data, 5000) and one.keep(header, data), both)) == [True] * 3
    assert both[0].known([b"899", b"0"]) == [899 + 900 * 4, 4500]


def test_what_is_no_bytes_is_a_type_error() -> None:
    tested = Both().native
    calls: list[Callable[[Any], Any]] = [
        lambda wrong: tested.note(wrong, 1, 0, 0),
        lambda wrong: tested.keep(wrong, (1, 0, 0, None, None), (0, False, 0)),
        lambda wrong: tested.put([wrong], [0]),
        lambda wrong: compiled.KeyMap and compiled.KeyMap(9, 8, wrong),
    ]
    for call in calls:
        for wrong in (memoryview(b""), bytearray(), "", 5):
            with pytest.raises(TypeError):
                call(wrong)
    with pytest.raises(ValueError, match="16"):
        calls[3](b"short")
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            tested.put([b""], [number])
    assert len(tested) == 0


def test_the_twin_is_asked_only_about_what_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = KeyMap(LARGE, 0.9, SECRET)
    raw = build_batch([Record(timestamp=NOW, key=b"k", value=b"v")])
    header = read_header(raw)
    data = records_data(raw, 0, header)
    with monkeypatch.context() as patch:
        for name in ("_note", "_keep"):
            patch.setattr(key_map, name, lambda *_: pytest.fail("the twin was asked"))
        assert tested.note(data, 1, 0, 0) == (True, 0)
        assert tested.keep(header, data, 0, False, NOW) == (1, 0, False, None)
        with pytest.raises(pytest.fail.Exception):
            tested.note(data, 2, 0, 0)
    with pytest.raises(CorruptRecords, match="ends inside a record"):
        tested.note(data, 2, 0, 0)
    # Needless bytes in a time are nothing that noting looks at, and the twin takes as many as there are.
    odd = b"\x26\0" + b"\x80" * 11 + b"\0\0\x02z\x02v\0"
    assert tested._compiled.note(odd, 1, 7, 0) is None
    assert tested.note(odd, 1, 7, 0) == (True, 7)
    assert tested.get([b"z"]) == [7]
