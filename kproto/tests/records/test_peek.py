"""Single fields of batches and messages, against what reads all of them."""

from __future__ import annotations

import pytest

from barnabas.kproto.records import TRANSACTIONAL, Record, build_batch, read_header
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE, end_offset, entry_bytes, producer_of


@pytest.mark.parametrize("in_front", [0, 7])
@pytest.mark.parametrize("transactional", [False, True])
def test_of_a_batch(transactional: bool, in_front: int) -> None:
    records = [Record(offset, 1_700_000_000_000, None, b"value", []) for offset in range(4)]
    batch = build_batch(
        records, base_offset=70_000, producer_id=1 << 40, producer_epoch=3, base_sequence=9, transactional=transactional
    )
    buf = bytes(in_front) + bytes(batch) + b"what follows"
    header = read_header(buf, in_front)
    assert entry_bytes(buf, in_front) == len(batch)
    assert end_offset(buf, in_front) == header.base_offset + header.last_offset_delta + 1 == 70_004
    assert producer_of(buf, in_front) == (1 << 40, 3, 9)
    assert bool(buf[in_front + ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL) == transactional


def test_of_an_older_message() -> None:
    for magic in (0, 1):
        message = (500).to_bytes(8, "big") + (30).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(25)
        assert entry_bytes(message) == len(message) == 42
        assert end_offset(message) == 501


def test_a_length_is_given_as_it_stands() -> None:
    assert entry_bytes(bytes(8) + (-20).to_bytes(4, "big", signed=True)) == -8
