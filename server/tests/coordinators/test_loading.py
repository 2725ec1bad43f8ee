"""Slices of `__consumer_offsets` into a group machine: all formats, and what is broken."""

from __future__ import annotations

import pytest

from barnabas.coordinator import GroupConfig, GroupShard
from barnabas.coordinator.stored import CommittedOffset, offset_record
from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.kproto.records_legacy import build_message_set
from barnabas.server.coordinators.loading import replay_slice


def commits(*offsets: int, partition: int = 0) -> list[Record]:
    return [
        Record(0, 1000, *offset_record("g", "t", partition, CommittedOffset(offset, -1, "", 1000))[:2])
        for offset in offsets
    ]


def load(data: bytes | bytearray, *, end_offset: int = 1000, offset: int = 0) -> tuple[int, dict[int, int]]:
    shard = GroupShard(GroupConfig())
    next_offset = replay_slice(shard, bytes(data), offset, end_offset, end_offset, "t")
    return next_offset, {
        each.partition: each.offset for each in shard.fetch("g", shard.with_offsets("g"), False, end_offset)
    }


@pytest.mark.parametrize("codec", range(5))
def test_batches_of_every_codec(codec: int) -> None:
    data = build_batch(commits(1, 2, 3), codec=codec) + build_batch(commits(4), base_offset=3, codec=codec)
    assert load(data) == (4, {0: 4})


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_message_sets_of_old_brokers(magic: int, codec: int) -> None:
    old = build_message_set(commits(1, 2, 3), magic=magic, codec=codec)
    assert load(bytes(old) + build_batch(commits(4), base_offset=3)) == (4, {0: 4})


def test_a_batch_that_is_cut_off_is_left_for_the_next_slice() -> None:
    first, second = build_batch(commits(1)), build_batch(commits(2), base_offset=1)
    for cut in (1, 12, 17, 40, len(second) - 1):
        assert load(first + second[:cut]) == (1, {0: 1})
    assert load(b"") == (0, {})


def test_transactional_commits_count_when_their_marker_is_there() -> None:
    def batch(offset: int, base_offset: int, producer_id: int, partition: int) -> bytes:
        return bytes(
            build_batch(
                commits(offset, partition=partition),
                base_offset=base_offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )

    def marker(base_offset: int, producer_id: int, commit: bool) -> bytes:
        return bytes(
            build_control_batch(
                base_offset=base_offset,
                producer_id=producer_id,
                producer_epoch=0,
                commit=commit,
                coordinator_epoch=0,
                timestamp=1000,
            )
        )

    data = batch(5, 0, 7, 0) + batch(6, 1, 8, 1)
    assert load(data) == (2, {})
    data += marker(2, 8, False)
    assert load(data) == (3, {})
    assert load(data + marker(3, 7, True)) == (4, {0: 5})


def test_a_damaged_batch_is_skipped_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    damaged = build_batch(commits(2, 2, 2), base_offset=1)
    damaged[-1] ^= 1
    data = build_batch(commits(1)) + damaged
    assert load(data) == (4, {0: 1})
    data += build_batch(commits(3, partition=1), base_offset=4)
    assert load(data) == (5, {0: 1, 1: 3})
    # Its own word for where it ends is not believed beyond the end of the log.
    assert load(damaged, end_offset=3, offset=1) == (2, {})
    assert "offset 1 cannot be read" in caplog.text


def test_a_damaged_record_is_skipped_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    records = [Record(0, 1000, b"\x00\x01\x00", b"?"), Record(0, 1000, None, b"no key"), *commits(3)]
    assert load(build_batch(records)) == (3, {0: 3})
    assert "record 0" in caplog.text
    assert "record 1" in caplog.text


def test_records_behind_the_end_are_not_read() -> None:
    data = build_batch(commits(1)) + build_batch(commits(2), base_offset=1)
    assert load(data, end_offset=1) == (1, {0: 1})
