"""The session cache: epochs, eviction, fairness of slots."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from weakref import ref

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.requests.fetch import sessions as fetch_sessions
from barnabas.server.requests.fetch.sessions import (
    EVICTION_S,
    FetchSession,
    FetchSessions,
    FetchTarget,
    TargetKey,
)


class Client:
    """Some connection."""


def targets(count: int) -> dict[TargetKey, FetchTarget]:
    made = [FetchTarget("t", bytes(16), index) for index in range(count)]
    return {target.key: target for target in made}


def test_epochs_count_up_and_wrap() -> None:
    sessions = FetchSessions(10, Random(1))
    session = sessions.open(targets(1), False, False, 0.0)
    assert session is not None
    assert sessions.use(session.session_id, 1, False, 1.0) is session
    session.advance()
    assert session.epoch == 2
    session.epoch = 0x7FFFFFFF
    session.advance()
    assert session.epoch == 1
    with pytest.raises(KafkaError) as refused:
        sessions.use(session.session_id, 2, False, 1.0)
    assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_nothing_to_remember_opens_nothing() -> None:
    assert FetchSessions(10, Random(1)).open({}, False, False, 0.0) is None


def test_a_full_cache_evicts_the_idle_then_the_smaller() -> None:
    sessions = FetchSessions(2, Random(1))
    small, large = (sessions.open(targets(n), False, False, float(n)) for n in (2, 5))
    assert small is not None
    assert large is not None
    assert sessions.open(targets(2), False, False, 10.0) is None
    middle = sessions.open(targets(3), False, False, 10.0)
    assert middle is not None
    with pytest.raises(KafkaError):
        sessions.use(small.session_id, 1, False, 10.0)
    # Long unused, whatever its size.
    late = 5.0 + EVICTION_S + 1
    sessions.use(middle.session_id, 1, False, late)
    assert sessions.open(targets(1), False, False, late) is not None
    with pytest.raises(KafkaError):
        sessions.use(large.session_id, 1, False, late)
    assert sessions.evictions == 2
    sessions.close(middle.session_id)
    assert sessions.evictions == 2


def test_followers_come_first() -> None:
    sessions = FetchSessions(1, Random(1))
    assert sessions.open(targets(100), False, False, 0.0) is not None
    follower = sessions.open(targets(1), False, True, 0.0)
    assert follower is not None
    assert sessions.open(targets(100), False, False, 0.0) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_never_outgrows_its_slots(seed: int) -> None:
    rng = Random(seed)
    slots = rng.randrange(0, 6)
    sessions = FetchSessions(slots, rng)
    now = 0.0
    open_ones: list[FetchSession] = []
    for _ in range(200):
        now += rng.random() * 60
        made = sessions.open(targets(rng.randrange(0, 5)), False, rng.random() < 0.2, now)
        if made is not None:
            open_ones.append(made)
        if open_ones and rng.random() < 0.3:
            sessions.close(rng.choice(open_ones).session_id)
        assert len(sessions) <= slots, f"seed {seed}"


def test_all_sessions_together_are_bounded_and_the_largest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 100)
    monkeypatch.setattr(fetch_sessions, "SESSION_TARGETS_MAX", 60)
    sessions = FetchSessions(10, Random(1))
    assert sessions.open(targets(61), False, False, 0.0) is None
    one, other, third = Client(), Client(), Client()
    small = sessions.open(targets(5), False, False, 0.0, one)
    large = sessions.open(targets(50), False, False, 0.0, other)
    assert small is not None
    assert large is not None
    assert sessions.open(targets(50), False, False, 0.0, third) is None, "it would be the largest itself, or as large"
    assert sessions.open(targets(46), False, False, 0.0, third) is not None
    with pytest.raises(KafkaError):
        sessions.use(large.session_id, 1, False, 0.0)
    assert sessions.use(small.session_id, 1, False, 0.0) is small
    assert sessions.size == 51
    follower = sessions.open(targets(55), False, True, 0.0)
    assert follower is not None, "consumers make way for replicas"
    assert sessions.size == 60


def test_a_session_that_grows_makes_room_or_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 100)
    monkeypatch.setattr(fetch_sessions, "SESSION_TARGETS_MAX", 60)
    sessions = FetchSessions(10, Random(1))
    one, other = (sessions.open(targets(40), False, False, 0.0, Client()) for _ in range(2))
    assert one is not None
    assert other is not None
    one.targets.update(targets(50))
    sessions.resized(one)
    assert sessions.size == 90
    one.targets.update(targets(60))
    sessions.resized(one)
    one.targets.update(targets(61))
    with pytest.raises(KafkaError) as refused:
        sessions.resized(one)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.size) == (1, 40)
    other.targets.clear()
    sessions.resized(other)
    assert sessions.size == 0


def test_a_connection_has_two_sessions_and_idle_ones_are_evicted() -> None:
    sessions = FetchSessions(10, Random(1))
    connection = Client()
    first, second, third = (sessions.open(targets(1), False, False, 0.0, connection) for _ in range(3))
    assert len(sessions) == 2
    assert first is not None
    with pytest.raises(KafkaError):
        sessions.use(first.session_id, 1, False, 0.0)
    assert second is not None
    assert third is not None
    sessions.use(second.session_id, 1, False, 100.0)
    sessions.open(targets(1), False, False, EVICTION_S + 1, Client())
    assert sessions.use(second.session_id, 1, False, EVICTION_S + 1) is second
    with pytest.raises(KafkaError):
        sessions.use(third.session_id, 1, False, EVICTION_S + 1)


def test_a_session_does_not_keep_the_connection_that_opened_it() -> None:
    sessions = FetchSessions(10, Random(1))
    connection = Client()
    gone = ref(connection)
    opened = sessions.open(targets(1), False, False, 0.0, connection)
    assert opened is not None
    del connection
    assert gone() is None
    assert sessions.use(opened.session_id, 1, False, 1.0) is opened, "a client may go on with it on another one"
    successor = Client()  # perhaps where the first was in memory
    assert sessions.open(targets(1), False, False, 1.0, successor) is not None
    assert sessions.open(targets(1), False, False, 1.0, successor) is not None
    assert len(sessions) == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_count_of_partitions_is_right_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 100)
    monkeypatch.setattr(fetch_sessions, "SESSION_TARGETS_MAX", 60)
    rng = Random(seed)
    sessions = FetchSessions(8, rng)
    clients = [Client() for _ in range(3)]
    now = 0.0
    for _ in range(300):
        now += rng.random() * 20
        known = list(sessions._sessions.values())
        match rng.randrange(4):
            case 0:
                sessions.open(targets(rng.randrange(70)), False, rng.random() < 0.2, now, rng.choice(clients))
            case 1 if known:
                session = rng.choice(known)
                session.targets.clear()
                session.targets.update(targets(rng.randrange(1, 70)))
                with suppress(KafkaError):
                    sessions.resized(session)
            case 2 if known:
                sessions.close(rng.choice(known).session_id)
            case 3 if known:
                session = rng.choice(known)
                sessions.use(session.session_id, session.epoch, False, now)
        assert sessions.size == sum(len(session.targets) for session in sessions._sessions.values()), f"seed {seed}"
        assert sessions.size <= 100
