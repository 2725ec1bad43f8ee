"""The reader of MetricsData: what clients write, what they might, and what only an attacker writes."""

from __future__ import annotations

from math import isnan
from random import Random

import pytest

from barnabas.server.telemetry import otlp
from barnabas.server.telemetry.otlp import BadTelemetry, Point, read
from barnabas.server.tests.telemetry.otlp_kit import (
    attribute,
    counter,
    double,
    fixed,
    gauge,
    metrics_data,
    number,
    part,
    point,
    varint,
)


def only(data: bytes) -> Point:
    pushed = read(data, 100)
    (found,) = pushed.points
    return found


def test_gauges_and_sums() -> None:
    data = metrics_data(
        gauge("a.b", point(1.5, topic="t", partition="0"), point(2, topic="u")),
        counter("c", point(3)),
        counter("d", point(4.0), temporality=2),
        counter("e", point(5), monotonic=False),
        group_id="g",
    )
    pushed = read(data, 100)
    assert pushed.resource == {"group_id": "g"}
    assert pushed.left_out == 0
    assert pushed.points == [
        Point("a.b", {"topic": "t", "partition": "0"}, 1.5, False, False),
        Point("a.b", {"topic": "u"}, 2, False, False),
        Point("c", {}, 3, True, True),
        Point("d", {}, 4.0, True, False),
        Point("e", {}, 5, False, True),
    ]


def test_attributes_of_all_kinds() -> None:
    def any_value(key: str, value: bytes) -> bytes:
        return part(7, part(1, key) + part(2, value))

    values = (
        any_value("text", part(1, "t"))
        + any_value("yes", number(2, 1))
        + any_value("whole", number(3, 2**64 - 7))
        + any_value("real", double(4, 0.5))
        + any_value("list", part(5, part(1, part(1, "x"))))
        + any_value("bytes", part(7, b"\0"))
        + part(7, part(2, part(1, "without a key")))
    )
    assert only(metrics_data(gauge("g", part(1, double(4, 1) + values)))).attributes == {
        "text": "t",
        "yes": "true",
        "whole": "-7",
        "real": "0.5",
    }


def test_histograms_have_count_and_sum() -> None:
    for kind, attributes_field in ((9, 9), (10, 1), (11, 7)):
        place = part(1, fixed(4, 3) + double(5, 7.5) + attribute(attributes_field, "k", "v") + part(6, b"\0" * 16))
        data = metrics_data(part(2, part(1, "h") + part(kind, place + (number(2, 2) if kind != 11 else b""))))
        assert read(data, 100).points == [
            Point("h.count", {"k": "v"}, 3, True, False),
            Point("h.sum", {"k": "v"}, 7.5, True, False),
        ]


def test_a_point_without_a_value_is_none() -> None:
    assert read(metrics_data(gauge("g", part(1, attribute(7, "k", "v")))), 9).points == []
    assert read(metrics_data(gauge("g", part(1, double(4, 1.0) + number(8, 1)))), 9).points == []
    assert isnan(only(metrics_data(gauge("g", point(float("nan"))))).value)


def test_nothing_at_all() -> None:
    assert read(b"", 9) == ({}, [], 0)
    assert read(part(1, b""), 9) == ({}, [], 0)


def test_fields_that_are_not_known_are_skipped() -> None:
    strange = number(100, 7) + part(101, b"x") + double(102, 1.0) + varint(103 << 3 | 5) + b"\0\0\0\0"
    place = strange + double(4, 1.0) + strange
    data = metrics_data(part(2, strange + part(1, "g") + part(5, strange + part(1, place)))) + strange
    assert only(data).value == 1.0
    # A known number with another wire type is another field.
    assert read(number(1, 5) + part(1, number(1, 1) + number(2, 1)), 9).points == []


def test_points_beyond_the_limit_are_counted() -> None:
    pushed = read(metrics_data(gauge("a", point(1.0), point(2.0)), gauge("b", point(3.0), point(4.0))), 3)
    assert [each.value for each in pushed.points] == [1.0, 2.0, 3.0]
    assert pushed.left_out == 1


def test_texts_are_cut() -> None:
    data = metrics_data(gauge("n" * 5000, part(1, double(4, 1.0) + attribute(7, "k" * 5000, "ß" * 5000))))
    found = only(data)
    assert len(found.name) == otlp.TEXT_LENGTH_MAX
    assert [(len(key), value) for key, value in found.attributes.items()] == [(otlp.TEXT_LENGTH_MAX, "ß" * 256)]
    many = b"".join(attribute(7, f"k{n}", "v") for n in range(1000))
    assert len(only(metrics_data(gauge("g", part(1, double(4, 1.0) + many)))).attributes) == otlp.ATTRIBUTES_MAX


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "ends inside"),
        (b"\x0a\x05abc", "longer than"),
        (part(1, b"\x12\x7f"), "longer than"),
        (b"\x80" * 11, "ten bytes"),
        (b"\x00", "no field 0"),
        (varint(1 << 32), "no field"),
        (b"\x0b", "wire type 3"),
        (b"\x0c", "wire type 4"),
        (b"\x0f", "wire type 7"),
        (b"\x09\0\0", "longer than"),
        (metrics_data(gauge("g", part(1, b"\x21\0\0\0"))), "longer than"),
        (metrics_data(gauge("g", part(1, b"\x08\xff"))), "ends inside"),
    ],
)
def test_what_is_not_protobuf_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadTelemetry, match=why):
        read(data, 100)


def test_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is left out, which is said, and no error: a client that has much to say is not turned away."""
    monkeypatch.setattr(otlp, "FIELDS_MAX", 1000)
    assert read(b"\x10\x00" * 1000, 9).left_out == 0
    assert read(b"\x10\x00" * 1001, 9).left_out == 1
    pushed = read(
        metrics_data(gauge("a", point(1.0)), gauge("b", *[part(1, b"\x10\x00")] * 1001), gauge("c", point(2))), 9999
    )
    assert [each.name for each in pushed.points] == ["a"]
    assert pushed.left_out == 1


def test_damage_is_refused_or_read() -> None:
    """Whatever the bytes: no other exception, and no more points than asked for."""
    rng = Random(714)
    sound = metrics_data(
        gauge("org.apache.kafka.consumer.lag", *(point(float(n), topic="t", partition=str(n)) for n in range(20))),
        counter("org.apache.kafka.consumer.polls", point(5)),
        group_id="g",
    )
    refused = 0
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.randrange(len(data))] if rng.random() < 0.2 else data
        try:
            assert len(read(bytes(data), 10).points) <= 11
        except BadTelemetry:
            refused += 1
    assert 1000 < refused < 3000
    for _ in range(1000):
        try:
            read(rng.randbytes(rng.randrange(60)), 10)
        except BadTelemetry:
            pass
