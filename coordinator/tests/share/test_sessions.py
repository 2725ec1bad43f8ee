"""Share sessions: who may go on, what is told, what ends with a connection."""

from __future__ import annotations

import os
from random import Random

import pytest

from barnabas.coordinator.share import ShareSession, ShareSessions
from barnabas.coordinator.share import sessions as module
from barnabas.coordinator.share.sessions import END, following_epoch
from barnabas.kproto import ErrorCode, KafkaError

E = ErrorCode
SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40"))
P, Q, R = (b"t" * 16, 0), (b"t" * 16, 1), (b"u" * 16, 0)


def code(sessions: ShareSessions, epoch: int, member: str = "a") -> ErrorCode:
    try:
        sessions.resume("g", member, epoch)
    except KafkaError as error:
        return error.code
    return E.NONE


def test_epochs() -> None:
    sessions = ShareSessions()
    for epoch in (END, 1, 7):
        assert code(sessions, epoch) == E.SHARE_SESSION_NOT_FOUND
    session = sessions.begin("g", "a", "here", 10)
    assert code(sessions, 1) == E.NONE
    assert code(sessions, 1) == E.INVALID_SHARE_SESSION_EPOCH
    assert code(sessions, 3) == E.INVALID_SHARE_SESSION_EPOCH
    assert code(sessions, 2) == E.NONE
    assert code(sessions, END) == E.NONE
    assert session.epoch == 3, "whoever ends it may have to be told what went wrong"
    assert code(sessions, 0) == E.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 2**31 - 1
    assert code(sessions, 2**31 - 1) == E.NONE
    assert session.epoch == following_epoch(2**31 - 1) == 1


def test_a_limit() -> None:
    sessions = ShareSessions()
    first = sessions.begin("g", "a", "here", 2)
    sessions.begin("h", "a", "here", 2)
    with pytest.raises(KafkaError) as refused:
        sessions.begin("g", "b", "there", 2)
    assert refused.value.code == E.SHARE_SESSION_LIMIT_REACHED
    again = sessions.begin("g", "a", "there", 2)
    assert again is not first, "who has one may begin anew"
    assert len(sessions) == 2
    sessions.end(first)
    assert len(sessions) == 2, "which is over already"
    sessions.end(again)
    assert not sessions.has_group("g")
    assert sessions.has_group("h")
    sessions.begin("g", "b", "there", 2)


def test_partitions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names more than there is room for, of partitions that need not exist, is refused."""
    monkeypatch.setattr(module, "SESSION_PLACES_MAX", 3)
    monkeypatch.setattr(module, "PLACES_MAX", 4)
    sessions = ShareSessions()
    topic = bytes(16)

    def adds(session: ShareSession, *numbers: int) -> bool:
        try:
            sessions.add(session, [(topic, number) for number in numbers])
        except KafkaError as error:
            return error.code != E.SHARE_SESSION_LIMIT_REACHED
        return True

    a = sessions.begin("g", "a", "one", 10)
    assert adds(a, 0, 1, 2)
    assert adds(a, 0, 1, 2), "they are there"
    assert not adds(a, 3)
    assert len(a) == 3
    b = sessions.begin("g", "b", "two", 10)
    assert not adds(b, 0, 1)
    assert adds(b, 0)
    sessions.forget(a, [(topic, 0), (topic, 9)])
    assert adds(b, 1)
    assert not adds(b, 2)
    a = sessions.begin("g", "a", "one", 10)
    assert adds(a, 5, 6)
    sessions.end_of("two")
    assert adds(a, 7)
    sessions.clear()
    assert adds(a, 8, 9), "it is over, and nothing is kept"
    assert len(a) == 3
    again = sessions.begin("g", "c", "two", 10)
    assert adds(again, 1, 2, 3)


def test_connections() -> None:
    sessions = ShareSessions()
    sessions.begin("g", "a", "here", 9)
    sessions.begin("g", "b", "here", 9)
    sessions.begin("g", "c", "there", 9)
    assert [session.member_id for session in sessions.end_of("here")] == ["a", "b"]
    assert sessions.end_of("here") == []
    assert code(sessions, 1, "a") == E.SHARE_SESSION_NOT_FOUND
    assert code(sessions, 1, "c") == E.NONE
    assert [session.member_id for session in sessions.clear()] == ["c"]
    assert len(sessions) == 0


def test_what_is_told() -> None:
    session = ShareSessions().begin("g", "a", "here", 9)
    session.add([P, Q])

    def told(**what: bool) -> bool:
        return session.must_tell(P, **{"has_records": False, "has_error": False, "is_asked": False, **what})

    assert told(), "it is new"
    assert not told()
    assert told(has_records=True)
    assert told(is_asked=True)
    assert not told()
    assert told(has_error=True)
    assert told(has_error=True)
    assert told(), "the error is over"
    assert not told()
    session.add([P])
    assert not told(), "it was there"
    session.forget([P])
    assert P not in session
    assert not told()
    assert told(is_asked=True)
    assert told(has_error=True)
    session.add([P])
    assert told(), "it is new again"


def test_turns() -> None:
    session = ShareSessions().begin("g", "a", "here", 9)
    assert session.in_turn() == []
    session.add([P, Q, R])
    assert session.in_turn() == [Q, R, P]
    session.epoch = 2
    assert session.in_turn() == [R, P, Q]
    session.epoch = 3
    assert session.in_turn() == [P, Q, R]
    session.must_tell(P, has_records=True, has_error=False, is_asked=False)
    assert session.in_turn() == [Q, R, P]
    assert list(session.places) == [Q, R, P]
    assert len(session) == 3


def test_random_requests() -> None:
    for seed in range(SEEDS):
        rng = Random(seed)
        sessions, expected = ShareSessions(), dict[str, int]()
        for _ in range(200):
            member = rng.choice("abc")
            dice = rng.random()
            if dice < 0.2:
                sessions.begin("g", member, member, 3)
                expected[member] = 1
            elif dice < 0.3:
                for session in sessions.end_of(member):
                    del expected[session.member_id]
            else:
                epoch = rng.choice((1, END, expected.get(member, 5), expected.get(member, 5)))
                told = code(sessions, epoch, member)
                if member not in expected:
                    assert told == E.SHARE_SESSION_NOT_FOUND, seed
                elif epoch == END:
                    assert told == E.NONE, seed
                    sessions.end(sessions.resume("g", member, END))
                    del expected[member]
                elif epoch == expected[member]:
                    assert told == E.NONE, seed
                    expected[member] += 1
                else:
                    assert told == E.INVALID_SHARE_SESSION_EPOCH, seed
            assert len(sessions) == len(expected), seed
            assert sessions.has_group("g") == bool(expected), seed
