"""The map of compaction against a dict, in all of its forms."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from barnabas.kproto import compiled
from barnabas.logdir.compaction.key_map import KeyMap
from barnabas.logdir.compaction.offset_map import OffsetMap, capacity

SECRET = bytes(range(16))


@pytest.mark.parametrize("memory", [4_000, 40_000, 400_000])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pure", [True, False])
def test_it_is_a_dict(memory: int, seed: int, pure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if pure:
        monkeypatch.setattr(compiled, "KeyMap", None)
    rng = random.Random(seed)
    tested, known = KeyMap(memory, 0.9, rng.randbytes(16)), dict[bytes, int]()
    keys = [rng.randbytes(rng.randint(0, 40)) for _ in range(memory // 16)]
    offset = 0
    while True:
        records = []
        for _ in range(rng.randint(1, memory // 80)):
            offset += rng.randint(1, 3)
            records.append((rng.choice(keys), offset))
        taken = tested.put([key for key, _ in records], [at for _, at in records])
        known.update(records[:taken])
        assert tested.fill == len(known) / capacity(memory, 0.9)[0]
        if taken < len(records):
            assert records[taken][0] not in known
            break
    assert len(known) == capacity(memory, 0.9)[1]
    assert tested.fill == pytest.approx(0.9, abs=0.01)
    assert tested.get([*keys, None]) == [*(known.get(key, -1) for key in keys), -1]
    # A key that is there can still be moved, another one has no room.
    there = next(iter(known))
    assert tested.put([there, b"not there", there], [offset + 1, offset + 2, offset + 3]) == 1
    assert tested.get([there]) == [offset + 1]


def test_keys_that_share_half_of_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        def __init__(self, key: bytes, digest_size: int, salt: bytes, person: bytes) -> None:
            self.key = key

        def digest(self) -> bytes:
            return bytes(8) + self.key.ljust(8)

    monkeypatch.setattr("barnabas.logdir.compaction.offset_map.blake2s", Half)
    tested = OffsetMap(2000, 0.9, SECRET)
    keys = [b"%d" % number for number in range(50)]
    assert tested.put(keys, range(50)) == 50
    assert tested.is_hashed
    assert tested.get([*keys, b"x"]) == [*range(50), -1]


def test_the_secret_says_where_keys_are() -> None:
    """So who writes them cannot choose what crowds the table. All of it counts."""
    tables = []
    for place in (None, 0, 15):
        tested = OffsetMap(2000, 0.9, bytes(number ^ (number == place) for number in range(16)))
        tested.put([b"%d" % number for number in range(50)], range(50))
        assert tested.is_hashed
        tables.append(list(tested._offsets))
    assert tables[0] != tables[1]
    assert tables[0] != tables[2]


def test_its_memory_is_bounded() -> None:
    memory = 150_000
    tested = OffsetMap(memory, 0.9, SECRET)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    offset = 0
    forms = []
    while tested.put([b"user-%012d" % (offset + n) for n in range(100)], [offset + n for n in range(100)]) == 100:
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
        KeyMap(24, 0.9, SECRET)
    full = OffsetMap(200, 1.0, SECRET)
    assert full.put([bytes((n,)) for n in range(20)], range(20)) < 20
    assert full.get([b"not there"]) == [-1]
    assert sys.getsizeof(full) < 200
