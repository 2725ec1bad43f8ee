"""The session cache: epochs, eviction, fairness of slots."""

from __future__ import annotations

from random import Random

import pytest

from kproto import ErrorCode, KafkaError
from server.fetch_sessions import EVICTION_SECONDS, FetchSession, FetchSessions, FetchTarget, TargetKey


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
    late = 5.0 + EVICTION_SECONDS + 1
    sessions.use(middle.session_id, 1, False, late)
    assert sessions.open(targets(1), False, False, late) is not None
    with pytest.raises(KafkaError):
        sessions.use(large.session_id, 1, False, late)


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
