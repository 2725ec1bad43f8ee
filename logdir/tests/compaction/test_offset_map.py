"""The map of compaction against a dict, in both of its forms."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from barnabas.logdir.compaction.offset_map import OffsetMap


@pytest.mark.parametrize("memory", [4_000, 40_000])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_a_dict(memory: int, seed: int) -> None:
    rng = random.Random(seed)
    tested, known = OffsetMap(memory, 0.9), dict[bytes, int]()
    keys = [rng.randbytes(rng.randint(0, 40)) for _ in range(3000)]
    offset = 0
    while True:
        records = []
        for _ in range(rng.randint(1, 50)):
            offset += rng.randint(1, 3)
            records.append((rng.choice(keys), offset))
        taken = tested.put(records)
        known.update(records[:taken])
        assert len(tested) == len(known)
        if taken < len(records):
            assert records[taken][0] not in known
            break
    assert tested.is_hashed
    assert tested.fill == pytest.approx(0.9, abs=0.01)
    assert tested.get([*keys, None]) == [*(known.get(key, -1) for key in keys), -1]
    # A key that is there can still be moved, another one has no room.
    there = next(iter(known))
    assert tested.put([(there, offset + 1)]) == 1
    assert tested.get([there]) == [offset + 1]


def test_keys_that_share_half_of_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        def __init__(self, key: bytes, digest_size: int) -> None:
            self.key = key

        def digest(self) -> bytes:
            return bytes(8) + self.key.ljust(8)

    monkeypatch.setattr("barnabas.logdir.compaction.offset_map.blake2s", Half)
    tested = OffsetMap(2000, 0.9)
    records = [(b"%d" % number, number) for number in range(50)]
    assert tested.put(records) == 50
    assert tested.is_hashed
    assert tested.get([*(key for key, _ in records), b"x"]) == [*range(50), -1]


def test_its_memory_is_bounded() -> None:
    memory = 150_000
    tested = OffsetMap(memory, 0.9)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    offset = 0
    forms = []
    while tested.put([(b"user-%012d" % (offset + n), offset + n) for n in range(100)]) == 100:
        offset += 100
        if tested.is_hashed and not forms:
            forms.append(offset)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < memory * 1.15
    assert offset > memory / 36
    assert memory / 4 / forms[0] < 250


def test_too_little_memory_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(24, 0.9)
    full = OffsetMap(200, 1.0)
    assert full.put([(bytes((n,)), n) for n in range(20)]) < 20
    assert full.get([b"not there"]) == [-1]
    assert sys.getsizeof(full) < 200
