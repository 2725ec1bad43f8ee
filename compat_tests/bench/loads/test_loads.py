"""The records and requests that the benchmark sends, before any broker sees them."""

from __future__ import annotations

import json
import struct
import zlib
from itertools import islice
from pathlib import Path

import pytest

from compat_tests.bench.loads import exchanges, frames
from compat_tests.bench.loads.values import MIXED, SMALL, Shape, Values, in_turn, read, values

FEW = 500


@pytest.mark.parametrize("shape", [MIXED, SMALL, Shape(1024, 1024, FEW)], ids=["mixed", "small", "one size"])
def test_values_are_json_of_the_sizes_asked_for(shape: Shape) -> None:
    found = list(islice(values(shape), FEW))
    sizes = [len(value) for value in found]
    assert shape.smallest <= min(sizes)
    assert max(sizes) <= shape.largest
    assert abs(sum(sizes) / FEW - shape.mean_bytes) < shape.mean_bytes * 0.06
    assert len(set(found)) == FEW
    for value in found:
        assert isinstance(json.loads(value), dict)


@pytest.mark.parametrize("shape", [MIXED, SMALL], ids=["mixed", "small"])
def test_values_shrink_as_text_does(shape: Shape) -> None:
    """Real JSON with text in it shrinks to between a half and a fifth, not to nothing and not hardly."""
    batch = b"".join(islice(values(shape), 16_384 // int(shape.mean_bytes)))
    assert 2 < len(batch) / len(zlib.compress(batch)) < 5


def test_values_are_the_same_each_time(tmp_path: Path) -> None:
    shape = Shape(60, 140, FEW)
    first, second = (Values(tmp_path / name) for name in ("a", "b"))
    assert first.file(shape).read_bytes() == second.file(shape).read_bytes()
    assert first.digests() == second.digests()
    found = read(first.file(shape))
    assert found == list(values(shape))
    assert first.total_bytes(shape, 2 * FEW + 3) == sum(map(len, islice(in_turn(found), 2 * FEW + 3)))
    assert found != list(values(shape, seed=1))


def test_too_small_values_are_refused() -> None:
    with pytest.raises(ValueError, match="20 bytes are too few"):
        list(values(Shape(20, 20, 1)))


def test_a_crc_that_is_known() -> None:
    """RFC 3720, B.4."""
    assert frames.crc32c(bytes(32)) == 0x8A9136AA
    assert frames.crc32c(b"123456789") == 0xE3069283


def test_varints() -> None:
    assert [frames.varint(number) for number in (0, -1, 1, 63, -65, 300)] == [
        *(b"\x00", b"\x01", b"\x02", b"\x7e", b"\x81\x01", b"\xd8\x04")
    ]
    assert frames.compact_length(127) == b"\x80\x01"


def test_the_file_of_exchanges(tmp_path: Path) -> None:
    exchanges.write(
        tmp_path / "file", [exchanges.Exchange(9092, b"abc", 20, (8, 12)), exchanges.Exchange(9093, b"d", 10, ())]
    )
    expected = struct.pack(">iii3siiii", 2, 9092, 3, b"abc", 20, 2, 8, 12)
    expected += struct.pack(">ii1sii", 9093, 1, b"d", 10, 0)
    assert (tmp_path / "file").read_bytes() == expected
