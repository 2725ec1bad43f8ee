"""A day in a web shop as a clickstream: sessions of views, carts and purchases, the same for the same seed.

Every line is one JSON object, or garbled (a client with a bug). A line has two times, both milliseconds since the
epoch: `at`, when it happened, and its arrival, when it reaches the broker. Three kinds of lateness:

- most lines arrive within three seconds;
- some arrive up to `SLOW_MS` late (a phone in a tunnel): they count;
- a few phones are without network and hand in their lines when the next shift begins, at least half an hour late:
  whoever aggregates has closed those windows by then.

The day is cut into `SHIFTS` equal shifts by arrival.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

DAY_START_MS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
SHIFTS = 4
SHIFT_MS = DAY_MS // SHIFTS
SLOW_MS = 5 * MINUTE_MS
OFFLINE_MS = 30 * MINUTE_MS

COUNTRIES = {"DE": 0.40, "FR": 0.27, "ES": 0.20, "PL": 0.13}
CAMPAIGN = ("FR", 20.0, 22.0)
# Visitors per hour of the day, relative.
HOURS = (5, 3, 2, 2, 2, 3, 6, 10, 13, 14, 15, 16, 18, 16, 14, 14, 15, 17, 20, 23, 25, 22, 16, 9)
PRODUCTS = {"lamp": 3_900, "chair": 8_900, "desk": 24_900, "shelf": 12_900, "mug": 900, "plant": 1_900, "rug": 7_900}
BUYER_SHARE, CART_SHARE = 0.10, 0.22
SLOW_SHARE, OFFLINE_SHARE, GARBLED_SHARE = 0.04, 0.01, 0.002


@dataclass(frozen=True)
class Line:
    """What one customer's device sends: *customer* decides the partition, so a customer's lines stay in order."""

    customer: str
    body: str
    at_ms: int
    arrival_ms: int


def day(seed: int, sessions: int) -> list[list[Line]]:
    """Return the lines of each shift in order of arrival."""
    dice = random.Random(seed)
    shifts: list[list[Line]] = [[] for _ in range(SHIFTS)]
    number = 0
    for session in range(sessions):
        customer = f"c{dice.randrange(sessions * 2 // 3):05d}"
        for event in _session(dice):
            number += 1
            at_ms = event["at"]
            if at_ms >= DAY_START_MS + DAY_MS:
                break
            body = json.dumps({"id": number, "session": session, "customer": customer, **event})
            if dice.random() < GARBLED_SHARE:
                body = body[: dice.randrange(1, len(body))]
            line = Line(customer, body, at_ms, _arrival(dice, at_ms))
            shifts[min((line.arrival_ms - DAY_START_MS) // SHIFT_MS, SHIFTS - 1)].append(line)
    for shift in shifts:
        shift.sort(key=lambda line: line.arrival_ms)
    return shifts


def heartbeat() -> Line:
    """Return a line that says it is an hour after midnight, so that the last windows can be closed."""
    end_ms = DAY_START_MS + DAY_MS + 60 * MINUTE_MS
    event = {"id": 0, "session": -1, "customer": "", "country": "", "kind": "heartbeat", "at": end_ms}
    return Line("", json.dumps(event), end_ms, end_ms)


def _session(dice: random.Random) -> Iterator[dict[str, object]]:
    country = dice.choices(list(COUNTRIES), list(COUNTRIES.values()))[0]
    hour = dice.choices(range(24), HOURS)[0] + dice.random()
    if country != CAMPAIGN[0] and dice.random() < 0.08:
        country, hour = CAMPAIGN[0], CAMPAIGN[1] + dice.random() * (CAMPAIGN[2] - CAMPAIGN[1])
    in_campaign = country == CAMPAIGN[0] and CAMPAIGN[1] <= hour < CAMPAIGN[2]
    at_ms = DAY_START_MS + int(hour * 60 * MINUTE_MS)
    cart: list[str] = []
    for _ in range(1 + min(int(dice.expovariate(1 / 3)), 12)):
        product = dice.choice(list(PRODUCTS))
        yield {"kind": "view", "country": country, "product": product, "at": at_ms}
        at_ms += dice.randrange(4_000, 90_000)
        if dice.random() < CART_SHARE:
            cart.append(product)
            yield {"kind": "cart", "country": country, "product": product, "at": at_ms}
            at_ms += dice.randrange(2_000, 20_000)
    if cart and dice.random() < BUYER_SHARE * (5 if in_campaign else 3):
        for product in cart:
            cents = PRODUCTS[product] * dice.choice((1, 1, 1, 2))
            yield {"kind": "purchase", "country": country, "product": product, "at": at_ms, "cents": cents}


def _arrival(dice: random.Random, at_ms: int) -> int:
    kind = dice.random()
    next_shift_ms = at_ms + SHIFT_MS - (at_ms - DAY_START_MS) % SHIFT_MS
    last_shift = next_shift_ms >= DAY_START_MS + DAY_MS
    if kind < OFFLINE_SHARE and not last_shift and next_shift_ms - at_ms > 2 * OFFLINE_MS:
        return next_shift_ms + dice.randrange(20_000)
    return at_ms + dice.randrange(SLOW_MS if kind > 1 - SLOW_SHARE else 3_000)
