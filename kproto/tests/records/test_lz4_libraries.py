"""The two libraries for lz4 against each other: they write the same, read the same and refuse the same."""

from __future__ import annotations

import random
import sys

import lz4.block
import lz4.frame
import pytest

from barnabas.kproto.compression import LZ4, UNLIMITED, CorruptRecords, compress, decompress
from barnabas.kproto.lz4 import frames as lz4_frames
from barnabas.kproto.lz4 import libraries as lz4_libraries
from barnabas.kproto.lz4.libraries import Cramjam, Lz4
from barnabas.kproto.tests.records.test_lz4_frames import KINDS, words


def with_each(monkeypatch, do):
    """What comes of `do`, a result or the type of the error that it raises, with the one library and with the other."""
    found = []
    for used in (Lz4(), Cramjam()):
        monkeypatch.setattr(lz4_frames, "library", lambda used=used: used)
        try:
            found.append(do())
        except CorruptRecords as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize(
    ("size", "level"),
    [(size, level) for size in (0, 1, 300, 65_536, 65_537) for level in (None, 1, 9, 12)] + [(5_000_000, None)],
)
def test_both_write_the_same_and_each_reads_it(monkeypatch, size, level):
    data = (words(random.Random(size), min(size, 50_000)) * 100)[:size]
    one, other = with_each(monkeypatch, lambda: compress(LZ4, data, level=level))
    assert one == other
    assert one[:7] == lz4_libraries.HEADER
    assert with_each(monkeypatch, lambda: decompress(LZ4, one)) == [data, data]


@pytest.mark.parametrize("seed", range(40))
def test_both_refuse_the_same(monkeypatch, seed):
    """Frames of all kinds, whole and damaged, within bounds and beyond them."""
    rng = random.Random(seed)
    frames = [
        lz4.frame.compress(
            words(rng, rng.choice((0, 9, 900, 20_000))),
            block_size=rng.choice((4, 5, 6, 7)),
            **{name: rng.random() < 0.4 for name in KINDS},
        )
        for _ in range(rng.randrange(1, 4))
    ]
    data = b"".join(frames)
    size = len(decompress(LZ4, data))
    for _ in range(60):
        broken = bytearray(data)
        if rng.random() < 0.8:
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        if rng.random() < 0.2:
            del broken[rng.randrange(len(broken)) :]
        bounds = {
            "max_bytes": rng.choice((1 << 27, size, max(size - 1, 0), rng.randrange(size + 1))),
            "pieces_max": rng.choice((UNLIMITED, rng.randrange(9))),
            "lz4_v0": rng.random() < 0.3,
        }
        one, other = with_each(monkeypatch, lambda broken=broken, bounds=bounds: decompress(LZ4, broken, **bounds))
        assert one == other, f"seed {seed}: {bounds} {broken.hex()}"


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("damage", ["none", "checksum", "middle", "end"])
def test_both_stop_at_the_same_bound(monkeypatch, linked, damage):
    """A frame that is made in several steps, sound or not: what comes first, its fault or its size, is one answer."""
    data = (words(random.Random(1), 9_000) * 400)[:9_000_000]
    frame = bytearray(lz4.frame.compress(data, block_size=7, block_linked=linked, content_checksum=True))
    if damage == "end":
        del frame[-1:]
    elif damage != "none":
        frame[-1 if damage == "checksum" else len(frame) // 2] ^= 1
    for bound in (0, 1, 3_000_000, 4 << 20, 8_999_999, 9_000_000, 9_000_001, 1 << 27):
        one, other = with_each(monkeypatch, lambda bound=bound: decompress(LZ4, frame, max_bytes=bound))
        assert one == other, bound
        assert (one == data) == (damage == "none" and bound >= len(data))


def test_the_package_lz4_is_used_where_it_is_and_cramjam_where_it_is_not(monkeypatch):
    choose = lz4_libraries.library.__wrapped__
    assert type(choose()) is Lz4
    monkeypatch.delattr(lz4.block, "LZ4BlockError")  # an old one
    assert type(choose()) is Cramjam
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    assert type(choose()) is Cramjam
    assert lz4_libraries.library() is lz4_libraries.library()
