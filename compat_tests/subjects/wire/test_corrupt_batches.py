"""Record batches that are wrong in one way: the answer is Apache Kafka's, and the log stays as it was."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.wire.raw import (
    Wire,
    batch,
    fetch_answer,
    fetch_body,
    produce_answer,
    produce_body,
    record,
    text,
    varint,
)

pytestmark = pytest.mark.slow
AREA = "corrupt batches"
CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_ACKS, OUT_OF_ORDER, INVALID_RECORD = 2, 10, 21, 45, 87
INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION = 32, 76


def case(title: str) -> pytest.MarkDecorator:
    return pytest.mark.case(AREA, title, client="raw socket")


@pytest.fixture
def topic(broker: Broker, unique: Callable[..., str]) -> str:
    name = unique()
    with Wire(broker.address) as wire:
        # CreateTopics 2: one partition, one replica.
        wire.request(
            19, 2, struct.pack(">i", 1) + text(name) + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">ib", 60_000, 0)
        )
        wire.answer()

        def has_leader() -> bool:
            wire.request(3, 1, struct.pack(">i", 1) + text(name))
            if b"\xff\xff\xff\xff" in wire.answer():
                return False
            wire.request(1, 4, fetch_body(name, 0, 0))
            return fetch_answer(wire.answer())[0] == 0

        wait_until(has_leader, "the topic")
    return name


GOOD = batch([record(0, b"one"), record(1, b"two")])
BAD = {
    "a wrong checksum": (batch([record(0, b"one")], break_crc=True), CORRUPT_MESSAGE),
    "a flipped byte in a record": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], CORRUPT_MESSAGE),
    "more records counted than there are": (batch([record(0, b"one")], count=2, last_offset_delta=1), INVALID_RECORD),
    "fewer records counted than there are": (
        batch([record(0, b"one"), record(1, b"two")], count=1, last_offset_delta=0),
        INVALID_RECORD,
    ),
    "count and last offset disagree": (batch([record(0, b"one")], last_offset_delta=5), INVALID_RECORD),
    "a negative count": (batch([record(0, b"one")], count=-1), INVALID_RECORD),
    "no records at all": (batch([], count=0, last_offset_delta=0), INVALID_RECORD),
    "a base offset other than 0": (batch([record(0, b"one")], base_offset=5), INVALID_RECORD),
    "a control batch": (batch([record(0, b"one")], attributes=0x20), INVALID_RECORD),
    "two batches in one": (GOOD + GOOD, INVALID_RECORD),
    "the old format 1": (batch([record(0, b"one")], magic=1), INVALID_RECORD),
    "an empty batch": (b"", INVALID_RECORD),
}


@case("a bad batch is refused")
@pytest.mark.parametrize("what", BAD)
def test_a_bad_batch_is_refused(broker: Broker, topic: str, what: str) -> None:
    data, expected = BAD[what]
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, data))
        error, base_offset = produce_answer(wire.answer())
        assert (error, base_offset) == (expected, -1), what
        wire.request(0, 7, produce_body(topic, 0, GOOD))
        assert produce_answer(wire.answer()) == (0, 0)
        wire.request(1, 4, fetch_body(topic, 0, 0))
        error, high_watermark, records = fetch_answer(wire.answer())
        assert (error, high_watermark) == (0, 2)
        assert records[21:] == GOOD[21:]


@case("a batch over message.max.bytes is refused")
def test_too_large(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, batch([record(0, bytes(1_100_000))])))
        assert produce_answer(wire.answer()) == (MESSAGE_TOO_LARGE, -1)
        assert wire.works()


@case("acks other than -1, 0, 1 are refused")
def test_odd_acks(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, GOOD, acks=2))
        assert produce_answer(wire.answer()) == (INVALID_ACKS, -1)


@case("zstd below Produce 7 is refused")
def test_zstd_needs_a_newer_version(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 6, produce_body(topic, 0, batch([record(0, b"one")], attributes=4)))
        assert produce_answer(wire.answer())[0] == UNSUPPORTED_COMPRESSION


@case("acks=0 and an error closes the connection")
def test_an_error_without_acks_closes(broker: Broker, topic: str) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, batch([record(0, b"one")], break_crc=True), acks=0))
        assert wire.closes()


@case("sequence numbers: duplicates, gaps, old epochs")
def test_sequence_numbers(broker: Broker, topic: str) -> None:
    def send(wire: Wire, epoch: int, sequence: int) -> tuple[int, int]:
        data = batch([record(0, b"a"), record(1, b"b")], producer=(987_654, epoch, sequence))
        wire.request(0, 7, produce_body(topic, 0, data))
        return produce_answer(wire.answer())

    with Wire(broker.address) as wire:
        assert send(wire, 0, 0) == (0, 0)
        assert send(wire, 0, 2) == (0, 2)
        assert send(wire, 0, 0) == (0, 0)  # a duplicate gets its old offset
        assert send(wire, 0, 6)[0] == OUT_OF_ORDER
        assert send(wire, 1, 4)[0] == OUT_OF_ORDER  # a new epoch starts at 0
        assert send(wire, 1, 0) == (0, 4)
        assert send(wire, 0, 4)[0] == 47  # INVALID_PRODUCER_EPOCH
        for sequence in range(2, 14, 2):
            assert send(wire, 1, sequence)[0] == 0
        assert send(wire, 1, 2)[0] == OUT_OF_ORDER  # beyond the five remembered batches


@case("a record that lies about its length is refused")
def test_a_lying_record(broker: Broker, topic: str) -> None:
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(1000) + b"short" + varint(0)
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, batch([varint(len(body)) + body])))
        assert produce_answer(wire.answer())[0] in (CORRUPT_MESSAGE, INVALID_RECORD)


@case("a truncated batch is refused")
@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, 70])
def test_truncated_batches(broker: Broker, topic: str, size: int) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 7, produce_body(topic, 0, GOOD[:size]))
        try:
            assert produce_answer(wire.answer())[0] in (CORRUPT_MESSAGE, INVALID_RECORD)
        finally:
            with Wire(broker.address) as witness:
                assert witness.works()
