"""The compiled scan against its twin: the same values, and None exactly where the twin refuses.

Compared on what hypothesis makes (good records, then damaged ones, then any bytes), on batches of the fuzzer with all
its lies, and on all that its corpus holds. The examples are the same in each run; BARNABAS_TWIN_EXAMPLES says how many
hypothesis makes of each kind.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.kproto import compiled
from barnabas.kproto.compression import UNLIMITED, CorruptRecords
from barnabas.kproto.records import BATCH_OVERHEAD, Record, build_batch
from barnabas.kproto.records_scan import RecordsRefused, _OutOfRoom, _scan, validate_records
from barnabas.kproto.tests.records.record_samples import NOW, batch_around, some_records
from barnabas.kproto.varint import varint
from compat_tests.fuzz.batches import Batches
from compat_tests.fuzz.pools import Producer
from compat_tests.fuzz.recording import read

CORPUS = Path(__file__).resolve().parents[3] / "compat_tests" / "fuzz" / "corpus"
examples = settings(
    max_examples=int(os.environ.get("BARNABAS_TWIN_EXAMPLES", "500")), derandomize=True, database=None, deadline=None
)
pytestmark = pytest.mark.skipif(compiled.scan is None, reason=f"barnabas-native is not used: {compiled.CHOICE.why_not}")


def compare(data: bytes, count: int, odd_max: int = UNLIMITED, room: int = UNLIMITED) -> bool:
    """Whether the records are good, by both."""
    assert compiled.scan is not None
    found = compiled.scan(data, count, odd_max, room)
    try:
        expected = _scan(data, count, odd_max, room)
    except (CorruptRecords, IndexError, _OutOfRoom):
        assert found is None
        return False
    assert found == expected
    return True


# ---- what hypothesis makes

NUMBERS = (-1, 0, 1, 63, 64, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), -(2**31) - 1, 127, 128, 5)


class Dice:
    """Choices made by bytes, of which hypothesis finds the simplest that show a fault: zeros choose the usual."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, most: int) -> int:
        return next(self._bytes, 0) % most

    def rarely(self) -> bool:
        return self.below(12) == 11

    def number(self) -> int:
        return NUMBERS[self.below(len(NUMBERS))]

    def varint(self, value: int, bytes_max: int) -> bytes:
        """At times with needless bytes at its end, or bits beyond its width."""
        data = varint(value)
        while self.rarely():
            data = data[:-1] + bytes([data[-1] | 128, 0x70 if len(data) == bytes_max - 1 else 0])
        return data

    def field(self, null: bool = True) -> bytes:
        length = self.number() if self.rarely() else self.below(200) - (1 if null else 0)
        return self.varint(length, 5) + b"x" * min(max(length, 0), 9000)

    def record(self, index: int) -> bytes:
        headers = self.below(4) if self.rarely() else 0
        body = b"\0" + self.varint(self.number() if self.rarely() else self.below(200) - 9, 10)
        body += self.varint(self.number() if self.rarely() else index, 5) + self.field() + self.field()
        body += self.varint(self.number() if self.rarely() else headers, 5)
        for _ in range(headers):
            body += self.field(null=self.rarely()) + self.field()
        return self.varint(self.number() if self.rarely() else len(body), 5) + body

    def records(self) -> tuple[bytes, int]:
        """Bytes, and how many records they should be; behind odd ones there may be many alike or usual ones."""
        count = self.below(8)
        data = b"".join([self.record(index) for index in range(count)])
        alike, size, steps, spread = self.below(150), self.below(90), self.below(100), self.below(2) * self.below(200)
        for index in range(count, count + alike):
            value = b"v" * (size + (index * 7919 % spread if spread else 0))
            body = b"\0" + varint(index * steps % 1000) + varint(index) + b"\x02k" + varint(len(value)) + value + b"\0"
            data += varint(len(body)) + body
        return data, count + alike


limits = st.one_of(st.just(UNLIMITED), st.integers(-2, 200))


@examples
@example(b"\1" + bytes(13) + b"\x0b", UNLIMITED, -1)  # no headers, said in two bytes, where there is no room
@given(st.binary(max_size=150), limits, limits)
def test_records(choices: bytes, odd_max: int, room: int) -> None:
    compare(*Dice(choices).records(), odd_max, room)


@examples
@given(st.binary(max_size=150), st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3), st.binary(max_size=3))))
def test_damaged_records(choices: bytes, damage: list[tuple[int, int, bytes]]) -> None:
    data, count = Dice(choices).records()
    for at, gone, new in damage:
        at %= max(len(data), 1)
        data = data[:at] + new + data[at + gone :]
    for wrong in (0, 1, -1):
        compare(data, count + wrong)


@examples
@given(st.binary(max_size=80), st.integers(-2, 12), limits, limits)
def test_any_bytes(data: bytes, count: int, odd_max: int, room: int) -> None:
    compare(data, count, odd_max, room)


@examples
@given(st.lists(st.sampled_from([0, 1, 2, 4, 9, 0x0E, 0x10, 0x7F, 0x80, 0xFF]), max_size=40), st.integers(0, 5))
def test_bytes_that_records_are_made_of(data: list[int], count: int) -> None:
    compare(bytes(data), count)


def test_what_is_made_is_good_at_times() -> None:
    """The test of the tests."""
    rng = random.Random(3)
    found = [compare(*Dice(rng.randbytes(rng.randrange(150))).records()) for _ in range(300)]
    assert 50 < sum(found) < 250
    assert compare(*Dice(b"").records())


# ---- the project's own hostile data


@pytest.mark.parametrize("seed", range(8))
def test_batches_of_the_fuzzer(seed: int) -> None:
    rng = random.Random(seed)
    batches = Batches(rng)
    good = bad = 0
    for _ in range(150):
        batch = batches.records(Producer(None, -1, -1))
        if batch is None or len(batch) < BATCH_OVERHEAD:
            continue
        count = int.from_bytes(batch[57:61], "big", signed=True)
        found = compare(
            batch[BATCH_OVERHEAD:], count, odd_max=rng.choice([UNLIMITED, 10]), room=rng.choice([UNLIMITED, 5])
        )
        good, bad = good + found, bad + (not found)
    assert good > 10, f"seed {seed}"
    assert bad > 10, f"seed {seed}"


def in_the_corpus() -> Iterator[bytes]:
    for path in sorted(CORPUS.glob("*.fuzz")):
        for step in read(path.read_text()):
            if step.action in ("frame", "raw"):
                yield step.data[:100_000]


def test_the_corpus() -> None:
    """Whatever could be a batch in a packet, and the packets themselves."""
    batches = 0
    for data in in_the_corpus():
        compare(data, 1)
        at = data.find(b"\x02", 16)
        while 0 <= at < 4000:
            start = at - 16
            if len(data) >= start + BATCH_OVERHEAD:
                size = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
                if 49 <= size <= len(data):
                    count = int.from_bytes(data[start + 57 : start + 61], "big", signed=True)
                    compare(data[start + BATCH_OVERHEAD : start + 12 + size], count)
                    batches += 1
            at = data.find(b"\x02", at + 1)
    assert batches > 10


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 2, 2**31 - 1])
@pytest.mark.parametrize("room", [-(2**40), 0, UNLIMITED])
def test_numbers_at_the_ends_of_their_width(count: int, room: int) -> None:
    largest = varint(2**31 - 1)
    for data in (
        b"",
        b"\x10\0\0\0\x02k\x02v\0",
        largest + b"\0\0\0\x01\x01" + largest,  # the most headers that a record of the largest size may have
        largest + b"\0\0\0" + largest,
        largest + b"\0\0\0\x01" + largest,
        b"\x12\0\0\0\x01\x01\x02\0" + largest,  # the last header's value ends far behind all
        largest + b"\0\0\0\x01\x01\x02\0" + varint(2**31 - 1 - 8),  # there where the record's length says it ends
        varint(-(2**31)) + b"\0\0\0\x01\x01\0",
        b"\x80" * 300,
        b"\xff" * 300,
    ):
        compare(data, count, 0, room)
        compare(data, count, UNLIMITED, room)


# ---- what is not small


def test_large_data_in_several_threads() -> None:
    """The interpreter is released meanwhile."""
    rng = random.Random(5)
    data = bytes(build_batch([Record(0, NOW + i, b"k", rng.randbytes(i % 99)) for i in range(40_000)])[BATCH_OVERHEAD:])
    assert len(data) > 1 << 20
    with ThreadPoolExecutor(4) as threads:
        assert list(
            threads.map(lambda size: compare(data[:size], 40_000), [len(data), 9, len(data), len(data) - 1])
        ) == [
            True,
            False,
            True,
            False,
        ]


def test_what_is_no_bytes_is_a_type_error() -> None:
    assert compiled.scan is not None
    for wrong in (memoryview(b""), bytearray(), "", None, 5):
        with pytest.raises(TypeError):
            compiled.scan(wrong, 1, 1, 1)  # type: ignore[arg-type]
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            compiled.scan(b"", number, 1, 1)


def test_it_is_what_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin is not asked about good batches, and words what is refused."""
    monkeypatch.setattr("barnabas.kproto.records_scan._scan", lambda *_: pytest.fail("the twin was asked"))
    for codec in range(5):
        validate_records(build_batch(some_records(random.Random(codec), 50), codec=codec))
    with pytest.raises(pytest.fail.Exception):
        validate_records(batch_around(b"\x10", 1))
    monkeypatch.undo()
    with pytest.raises(RecordsRefused, match="ends inside a record"):
        validate_records(batch_around(b"\x10", 1))
