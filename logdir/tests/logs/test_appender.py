"""Appender alone: what it stages, refuses and remembers; nothing is written unless a test does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import iter_headers
from barnabas.logdir import AppendOrigin, StorageError, UnexpectedOffset
from barnabas.logdir.logs.append_rules import rules_of
from barnabas.logdir.logs.appender import Appender
from barnabas.logdir.tests.kit import NOW, batch
from barnabas.logdir.tests.logs.parts_kit import Rig


class Appending(Rig):
    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self.appender = Appender(self.state, self.limits, self.writer, self.roller())

    def append(self, data: bytearray, leader_epoch: int = 0) -> tuple[int, int]:
        info = self.appender.append(data, leader_epoch=leader_epoch, now_ms=NOW)
        return info.base_offset, info.last_offset


def test_offsets_and_epoch_are_put_into_the_buffer_which_is_staged() -> None:
    rig = Appending()
    first, second = batch("a", "b"), batch("c")
    assert rig.append(first, 4) == (0, 1)
    assert rig.append(second, 5) == (2, 2)
    assert (rig.state.next_offset, rig.state.log_end_offset) == (3, 0)
    assert [(view.obj, len(view)) for view in rig.writer.staged] == [(first, len(first)), (second, len(second))]
    assert rig.writer.batches == [(1, len(first), NOW), (2, len(second), NOW)]
    assert rig.writer.position == len(first) + len(second)
    ((_, header),) = iter_headers(second)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 5)
    assert rig.state.epochs.entries == ((4, 0), (5, 2))


def damaged() -> bytearray:
    data = batch("a")
    data[-1] ^= 1
    return data


REFUSED: list[tuple[Callable[[], bytearray], ErrorCode]] = [
    (damaged, ErrorCode.CORRUPT_MESSAGE),
    (lambda: batch("a")[:-1], ErrorCode.CORRUPT_MESSAGE),
    (lambda: batch("a" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
    (lambda: batch("a" * 400), ErrorCode.RECORD_LIST_TOO_LARGE),
    (lambda: batch("a", timestamp=NOW + 10**9), ErrorCode.INVALID_TIMESTAMP),
    (lambda: batch("a", producer=(1, 0, 7)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
]


@pytest.mark.parametrize(("make", "code"), REFUSED, ids=[code.name for _, code in REFUSED])
def test_nothing_is_staged_of_what_is_refused(make: Callable[[], bytearray], code: ErrorCode) -> None:
    rig = Appending(max_message_bytes=600, segment_bytes=300)
    rig.append(batch("first", producer=(1, 0, 0)))
    before = (rig.state.next_offset, rig.writer.position, list(rig.writer.batches), rig.state.epochs.entries)
    with pytest.raises(KafkaError) as caught:
        rig.append(make(), 9)
    assert caught.value.code is code
    assert (rig.state.next_offset, rig.writer.position, rig.writer.batches, rig.state.epochs.entries) == before


def test_a_repeated_batch_has_the_offsets_that_it_had() -> None:
    rig = Appending()
    rig.append(batch("a", producer=(1, 0, 0)))
    info = rig.appender.append(batch("a", producer=(1, 0, 0)), leader_epoch=0, now_ms=NOW)
    assert (info.base_offset, info.duplicate) == (0, True)
    assert rig.state.next_offset == 1


def test_what_does_not_fit_begins_a_segment() -> None:
    rig = Appending(segment_bytes=200)
    for number in range(5):
        rig.append(batch(f"{number}" * 40))
    rig.writer.write()
    assert rig.bases() == [0, 1, 2, 3, 4]
    assert rig.owner.heard == ["rolled"] * 4
    assert rig.state.log_end_offset == 5


def test_a_log_that_failed_takes_nothing() -> None:
    rig = Appending()
    failure = rig.state.broken("writing to", OSError(errno.EIO, "said the test"))
    with pytest.raises(StorageError) as caught:
        rig.append(batch("a"))
    assert caught.value is failure
    assert rig.appender.append_run([memoryview(batch("a"))], leader_epoch=0, now_ms=NOW) == []


def test_another_configuration_counts_from_the_next_batch_on() -> None:
    rig = Appending()
    rig.append(batch("a" * 100))
    rig.appender.configure(replace(rig.state.config, max_message_bytes=100))
    with pytest.raises(KafkaError) as caught:
        rig.append(batch("a" * 100))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert rig.append(batch("a")) == (1, 1)


def test_logs_of_one_configuration_share_what_it_demands() -> None:
    config = Appending(max_message_bytes=700).state.config
    assert rules_of(config) is rules_of(replace(config))
    assert rules_of(config) is not rules_of(replace(config, max_message_bytes=701))


def test_a_leaders_batches_keep_their_offsets_and_epochs() -> None:
    rig = Appending()
    data = batch("a", "b", base_offset=5, leader_epoch=3)
    info = rig.appender.append(data, leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert (info.base_offset, info.last_offset, rig.state.next_offset) == (5, 6, 7)
    assert rig.state.epochs.entries == ((3, 5),)
    with pytest.raises(UnexpectedOffset) as caught:
        rig.appender.append(batch("x", base_offset=6), leader_epoch=9, now_ms=NOW, origin=AppendOrigin.REPLICATION)
    assert (caught.value.first_offset, caught.value.last_offset) == (6, 6)
    assert rig.state.next_offset == 7


def test_a_run_is_taken_up_to_what_is_not_plain() -> None:
    rig = Appending()
    ten = ["alike"] * 10
    for _ in range(2):
        rig.append(batch(*ten))  # two of the same size: the layout is known then
    plain, bad, behind = [memoryview(batch(*ten)) for _ in range(2)], memoryview(damaged()), memoryview(batch(*ten))
    assert rig.appender.append_run([*plain, bad, behind], leader_epoch=0, now_ms=NOW) == [29, 39]
    assert rig.state.next_offset == 40
    assert bytes(behind) == batch(*ten), "nothing happened to it"
    rig.writer.write()
    assert rig.state.log_end_offset == 40
