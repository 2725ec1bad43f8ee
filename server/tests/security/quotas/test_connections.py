"""How many connections, and how fast: who waits, who is closed, and who is not held to a limit."""

from __future__ import annotations

import random

import pytest

from barnabas.server.security.quotas.connections import (
    UNLIMITED,
    Ceiling,
    ConnectionLimits,
    Held,
    Refused,
    Taken,
)
from barnabas.server.security.quotas.rates import Rate, Window
from barnabas.server.security.quotas.shares import ConnectionRates

WINDOW = Window()
HOST = "10.0.0.1"
NOW = 1000.0


def limits(*listeners: str, hosts: ConnectionRates | None = None) -> ConnectionLimits:
    """`BROKERS` is the listener between brokers."""
    return ConnectionLimits(listeners or ("CLIENTS", "BROKERS"), "BROKERS", WINDOW, hosts)


def take(found: ConnectionLimits, listener: str, host: str = HOST, now: float = NOW) -> None:
    assert found.may_accept(listener, now)
    assert found.accepted(listener, host, now) == Taken(0)


# -- how many ---------------------------------------------------------------------------------------------------------


def test_without_limits_anybody_comes() -> None:
    found = limits()
    for number in range(1000):
        take(found, "CLIENTS", f"host{number}")
    assert (len(found), found.excess) == (1000, 0)
    for number in range(1000):
        found.left("CLIENTS", f"host{number}")
    assert len(found) == 0
    assert not found._per_host


def test_at_the_limit_of_the_broker_others_wait() -> None:
    found = limits()
    found.limit(Ceiling(2), {})
    take(found, "CLIENTS")
    take(found, "CLIENTS")
    assert not found.may_accept("CLIENTS", NOW)
    found.left("CLIENTS", HOST)
    assert found.may_accept("CLIENTS", NOW)


def test_the_listener_between_brokers_does_not_wait_for_others() -> None:
    found = limits()
    found.limit(Ceiling(2), {})
    take(found, "CLIENTS")
    take(found, "CLIENTS")
    take(found, "BROKERS")
    assert found.excess == 1
    assert found.spares("BROKERS")
    assert not found.spares("CLIENTS")
    found.left("CLIENTS", HOST)
    assert found.excess == 0
    assert not found.may_accept("CLIENTS", NOW)
    take(found, "BROKERS")
    assert not found.may_accept("BROKERS", NOW)  # the broker's limit is each listener's own, too


def test_the_only_listener_is_not_spared() -> None:
    found = limits("BROKERS")
    found.limit(Ceiling(1), {})
    take(found, "BROKERS")
    assert not found.may_accept("BROKERS", NOW)
    assert not found.spares("BROKERS")


def test_a_listener_with_a_limit_of_its_own() -> None:
    found = limits("CLIENTS", "OTHERS", "BROKERS")
    found.limit(Ceiling(10), {"CLIENTS": Ceiling(1), "BROKERS": Ceiling(1)})
    take(found, "CLIENTS")
    assert not found.may_accept("CLIENTS", NOW)
    take(found, "OTHERS")
    take(found, "BROKERS")
    assert not found.may_accept("BROKERS", NOW)
    assert found.excess == 0


def test_a_limit_that_is_lowered_makes_some_too_many() -> None:
    found = limits()
    for _ in range(5):
        take(found, "CLIENTS")
    found.limit(Ceiling(2), {})
    assert found.excess == 3
    found.limit(Ceiling(9), {})
    assert found.excess == 0
    take(found, "CLIENTS")


# -- addresses --------------------------------------------------------------------------------------------------------


def test_an_address_with_too_many_is_refused() -> None:
    found = limits()
    found.limit_each_host(1)
    found.limit_hosts({"10.0.0.2": 2, "10.0.0.3": 0})
    take(found, "CLIENTS")
    assert found.accepted("BROKERS", HOST, NOW) == Refused(1)
    take(found, "CLIENTS", "10.0.0.2")
    take(found, "CLIENTS", "10.0.0.2")
    assert found.accepted("CLIENTS", "10.0.0.2", NOW) == Refused(2)
    assert found.accepted("CLIENTS", "10.0.0.3", NOW) == Refused(0)
    assert len(found) == 3
    found.left("CLIENTS", HOST)
    take(found, "CLIENTS")


def test_an_address_that_comes_too_fast_is_held_and_counts_for_nothing() -> None:
    hosts = ConnectionRates(WINDOW)
    hosts.limits[HOST] = 1
    found = limits(hosts=hosts)
    found.limit(Ceiling(rate=5), {})
    for _ in range(10):
        take(found, "CLIENTS")
    for _ in range(1000):
        assert found.accepted("CLIENTS", HOST, NOW) == Held(1000)
    assert len(found) == 10
    for _ in range(40):  # nothing of it is in the rates of broker and listener, which let 50 come at once
        take(found, "CLIENTS", "10.0.0.2")
    assert found.accepted("CLIENTS", "10.0.0.2", NOW) == Taken(200)


# -- rates ------------------------------------------------------------------------------------------------------------


def test_connections_over_the_rate_are_served_later_and_others_wait() -> None:
    found = limits()
    found.limit(Ceiling(rate=2), {})
    for _ in range(20):
        take(found, "CLIENTS")
    assert found.accepted("CLIENTS", HOST, NOW) == Taken(500)
    assert not found.may_accept("CLIENTS", NOW + 0.4)
    assert found.may_accept("BROKERS", NOW)
    assert found.may_accept("CLIENTS", NOW + 0.5)


@pytest.mark.parametrize("rate", [0, 1])
def test_no_delay_is_longer_than_a_sample(rate: int) -> None:
    found = limits()
    found.limit(Ceiling(rate=rate), {})
    delays = []
    for _ in range(30):
        taken = found.accepted("CLIENTS", HOST, NOW)
        assert isinstance(taken, Taken)
        delays.append(taken.delay_ms)
    assert delays == [0] * 10 * rate + [1000] * (30 - 10 * rate)


def test_the_listener_between_brokers_has_a_rate_of_its_own_only() -> None:
    found = limits()
    found.limit(Ceiling(rate=1), {"CLIENTS": Ceiling(rate=100), "BROKERS": Ceiling(rate=2)})
    for _ in range(20):
        take(found, "BROKERS")
    assert found.accepted("BROKERS", HOST, NOW) == Taken(500)
    for _ in range(10):
        take(found, "CLIENTS")
    assert found.accepted("CLIENTS", HOST, NOW) == Taken(1000)


def test_the_longer_delay_counts() -> None:
    found = limits()
    found.limit(Ceiling(rate=10), {"CLIENTS": Ceiling(rate=2), "OTHERS": Ceiling(rate=50)})
    for _ in range(21):
        found.accepted("CLIENTS", HOST, NOW)
    assert found.accepted("CLIENTS", HOST, NOW) == Taken(1000)
    for _ in range(77):
        found.accepted("OTHERS", HOST, NOW)
    assert found.accepted("OTHERS", HOST, NOW) == Taken(0)
    assert found.accepted("OTHERS", HOST, NOW) == Taken(100)


def test_without_limits_nothing_is_measured() -> None:
    found = limits()
    take(found, "CLIENTS")
    assert not found._rates
    found.limit(Ceiling(rate=5), {})
    take(found, "CLIENTS")
    assert set(found._rates) == {"CLIENTS", None}
    found.limit(Ceiling(), {})
    take(found, "CLIENTS")
    assert not found._rates


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
def test_over_a_long_time_the_rate_is_kept_and_the_delays_are_the_formulas(limit: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    found = limits()
    found.limit(Ceiling(rate=limit), {"BROKERS": Ceiling(UNLIMITED)})
    now, served, model = NOW, 0, Rate(WINDOW, NOW)
    while now < NOW + 100:
        if found.may_accept("CLIENTS", now):
            model.record(1, now)
            delay_ms = min(model.delay_ms(limit, now), 1000)
            assert found.accepted("CLIENTS", HOST, now) == Taken(delay_ms)
            served += 1
        now += rng.choice([0, 0.001, 0.01])
    # What is above the rate comes at the beginning. A delay is one second at most: not enough for a limit of 1.
    assert served <= limit * 100 + 10 * limit + 10
    assert served >= limit * 100


def test_listeners_come_and_go() -> None:
    found = limits("BROKERS")
    found.limit(Ceiling(1), {"BROKERS": Ceiling(1), "CLIENTS": Ceiling(2, 1)})
    take(found, "BROKERS")
    assert not found.may_accept("BROKERS", NOW)  # the only one is not spared
    found.listen_on(["BROKERS", "CLIENTS"])
    assert found.spares("BROKERS")
    assert not found.may_accept("CLIENTS", NOW)  # the broker is full
    found.limit(Ceiling(9), {"BROKERS": Ceiling(9), "CLIENTS": Ceiling(2, 1)})
    for _ in range(20):
        found.accepted("CLIENTS", HOST, NOW)
    assert not found.may_accept("CLIENTS", NOW + 0.5)  # it came too fast
    for _ in range(20):
        found.left("CLIENTS", HOST)
    found.listen_on(["BROKERS"])
    found.listen_on(["BROKERS", "CLIENTS"])  # another one of that name, which nobody has come to
    assert found.may_accept("CLIENTS", NOW + 0.5)
    assert isinstance(found.accepted("CLIENTS", HOST, NOW + 0.5), Taken)
    found.listen_on(["BROKERS"])
    found.left("CLIENTS", HOST)  # what outlives its listener is not forgotten
    assert len(found) == 1
