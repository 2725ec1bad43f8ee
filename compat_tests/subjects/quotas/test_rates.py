"""Rates of clients with limits, as a stopwatch sees them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.subjects.quotas.limited import (
    Beside,
    Limited,
    Minute,
    ask_beside,
    consume,
    fill,
    produce,
    together,
)

AREA, CLIENT = "quotas", "confluent-kafka"
RATE = 200_000
TOLERANCE = 0.1
WANTED = 1.25 * RATE
WARM_S = 50.0
"""Clients that want so much have used up by then that they may take ten seconds' worth more at first."""
MINUTE_S = 60.0
BESIDE_S, BESIDE = 1.0, 0.95
"""So long, and no longer, takes an answer to who has no limit, but for those that a machine delays which stands still.
"""
BURST_S = 10.0
"""What a client may take at once after a rest, in seconds of its rate."""
USER, ID = ("--entity-type", "users", "--entity-name"), ("--entity-type", "clients", "--entity-name")
WHOSE = {
    "a user": ((*USER, "alice"), "anything", "alice"),
    "a client id": ((*ID, "limited"), "limited", ""),
    "a user with a client id": ((*USER, "bob", *ID, "job"), "job", "bob"),
    "a user with any client id": ((*USER, "carol", "--entity-type", "clients", "--entity-default"), "one", "carol"),
}
"""The entity of kafka-configs, and a client that it is the limit of: client id and user."""
Limit = Callable[..., None]


@pytest.mark.case(AREA, "producers and consumers get their rate over a minute, and nobody else notices", CLIENT)
@pytest.mark.campaign
@pytest.mark.jvm
@pytest.mark.timeout(400)
def test_rates(limited: Limited, topic: str, limit: Limit, unique: Callable[..., str]) -> None:
    fill(limited.settings("filler"), topic, round(RATE * (MINUTE_S + WARM_S + 10)))
    for entity, _, _ in WHOSE.values():
        limit(f"producer_byte_rate={RATE},consumer_byte_rate={RATE}", *entity)
    warm = time.monotonic()
    begin = warm + WARM_S
    minutes: dict[str, Minute] = {}
    acts: list[Callable[[], None]] = []
    others: list[Beside] = []
    for whose, (_, client_id, user) in WHOSE.items():
        settings = limited.settings(client_id, user)
        for what, act, name, key in (
            ("a producer", produce, unique(), "txbytes"),
            ("a consumer", consume, topic, "rxbytes"),
        ):
            minute = minutes[f"{what} with the limit of {whose}"] = Minute(begin, begin + MINUTE_S, key)
            acts.append(partial(act, settings, name, minute, WANTED))
    other = limited.settings("other")
    acts.append(lambda: others.append(ask_beside(other, unique(), begin + MINUTE_S)))
    together(acts)
    for who, minute in minutes.items():
        print(f"{who}: {minute.rate:.0f} bytes/s of {RATE} ({minute.rate / RATE - 1:+.1%})")
    (beside,) = others
    print(f"the slowest answer to somebody else: {beside.most(1):.3f} s, of most {beside.most(BESIDE):.3f} s")
    # The machine's rests are nobody's rate; and who could take nothing may take more at once afterwards.
    lost = beside.stood_still(begin, begin + MINUTE_S)
    rested = min(beside.stood_still(warm, begin + MINUTE_S), BURST_S)
    print(f"the machine stood still for {lost:.1f} s of the minute, clients may make up for {rested:.1f} s")
    for who, minute in minutes.items():
        assert minute.rate <= RATE * (1 + TOLERANCE) * (1 + rested / MINUTE_S), who
        assert minute.rate >= RATE * (1 - TOLERANCE) * (1 - lost / MINUTE_S), who
        assert minute.throttled, who
    assert not beside.throttled
    assert beside.most(BESIDE) < BESIDE_S


FLOOD_BYTES = 60_000_000
VALUE = bytes(10_000)
FLOOD_RATE = 100_000
FLOOD_S = 10.0
SOCKETS_BYTES = 16_000_000
"""What the kernel may hold of it, at both ends."""


@pytest.mark.case(AREA, "what a producer without answers sends beyond its rate stays with it", CLIENT)
@pytest.mark.campaign
@pytest.mark.jvm
def test_a_flood_is_not_buffered(limited: Limited, topic: str, limit: Limit) -> None:
    limit(f"producer_byte_rate={FLOOD_RATE}", *ID, "flood")
    assert sent_without_answers(limited.settings("free"), topic, 240.0)[0] == FLOOD_BYTES
    before = resident_bytes(limited)
    sent, seconds = sent_without_answers(limited.settings("flood"), topic, FLOOD_S)
    grown = resident_bytes(limited) - before
    print(f"{sent} bytes of {FLOOD_BYTES} left the client; the broker has {grown >> 10} KiB more")
    assert sent < FLOOD_RATE * (BURST_S + seconds) + SOCKETS_BYTES
    if limited.broker.name == "Barnabas":  # another's heap says nothing of one client
        assert grown < 4 << 20


def sent_without_answers(settings: dict[str, Any], topic: str, seconds: float) -> tuple[int, float]:
    """Of `FLOOD_BYTES`, those that the socket took within this time, and how long that was indeed."""
    producer = Producer(
        {**settings, "acks": "0", "queue.buffering.max.kbytes": 200_000, "queue.buffering.max.messages": 100_000}
    )
    for _ in range(FLOOD_BYTES // len(VALUE)):
        producer.produce(topic, VALUE)
    begun = time.monotonic()
    deadline = begun + seconds
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)
    left, lasted = len(producer), time.monotonic() - begun
    producer.purge()
    producer.flush(60)
    return FLOOD_BYTES - left * len(VALUE), lasted


def resident_bytes(limited: Limited) -> int:
    assert limited.broker.process is not None
    with open(f"/proc/{limited.broker.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.case(AREA, "request_percentage holds a client back that asks much", CLIENT)
@pytest.mark.campaign
@pytest.mark.jvm
def test_request_time(limited: Limited, topic: str, limit: Limit) -> None:
    quick, _, free_throttled = asked(limited.settings("idle"), topic, 8.0)
    free = 1 / quick  # without what the machine stood still
    limit("request_percentage=0.5", *ID, "busy")
    asked(limited.settings("busy"), topic, 12.0)  # what a client may take at once after a rest
    _, held, held_throttled = asked(limited.settings("busy"), topic, 8.0)
    print(f"{free:.0f} requests/s without a limit, {held:.0f}/s with 0.5 % of a thread")
    assert not free_throttled
    assert held_throttled
    assert held < free / 2


def asked(settings: dict[str, Any], topic: str, seconds: float) -> tuple[float, float, int]:
    """Small records, one after the other: how long an answer takes (the median), how many come in a second, and how
    often it was throttled.
    """
    minute = Minute(0, 0)
    producer = Producer({**settings, **minute.settings, "linger.ms": 0})
    producer.produce(topic, b"first")
    producer.flush(60)
    took: list[float] = []
    begin = now = time.monotonic()
    while now < begin + seconds:
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
        before, now = now, time.monotonic()
        took.append(now - before)
    return statistics.median(took), len(took) / (now - begin), minute.throttled
