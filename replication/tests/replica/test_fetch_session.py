"""The fetcher's half of fetch sessions: what is sent, what is forgotten, what an answer does to the session."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.replication.replica.fetch_session import FetcherSession, Key, Wanted

A, B = bytes([1]) * 16, bytes([2]) * 16


def wanted(topic: str = "a", index: int = 0, offset: int = 0, topic_id: bytes = A, epoch: int = 0) -> Wanted:
    return Wanted(topic, topic_id, index, epoch, offset, -1, 0)


def build(
    session: FetcherSession,
    everything: Iterable[Wanted] = (),
    changed: Iterable[tuple[Key, Wanted | None]] = (),
    by_id: bool = True,
) -> tuple[int, int, list[Wanted], list[Wanted]]:
    return session.build(by_id, lambda: everything, changed)


def opened(*everything: Wanted, by_id: bool = True) -> FetcherSession:
    session = FetcherSession()
    assert build(session, everything, by_id=by_id) == (0, 0, list(everything), [])
    assert session.answered(77, len(everything), True)
    return session


def test_only_what_differs_is_sent() -> None:
    session = opened(wanted(), wanted(index=1))
    assert build(session) == (77, 1, [], [])
    assert session.answered(77, 0, True)
    changes = [(("a", 0), wanted()), (("a", 1), wanted(index=1, offset=5))]
    assert build(session, changed=changes) == (77, 2, [wanted(index=1, offset=5)], [])
    assert session.answered(77, 1, True)
    assert build(session, changed=changes) == (77, 3, [], [])


def test_forgetting_and_adding() -> None:
    session = opened(wanted(), wanted(index=1))
    changes: list[tuple[Key, Wanted | None]] = [(("a", 0), None), (("b", 0), wanted("b", topic_id=B)), (("c", 0), None)]
    assert build(session, changed=changes) == (77, 1, [wanted("b", topic_id=B)], [wanted()])
    assert session.key_of(session.topic_of("", B), B, 0) == ("b", 0)
    assert session.key_of(session.topic_of("", A), A, 0) is None, "forgotten"
    assert session.key_of(session.topic_of("", bytes(15) + b"x"), bytes(15) + b"x", 0) is None


def test_topic_made_anew() -> None:
    session = opened(wanted(offset=9))
    again = wanted(topic_id=B)
    assert build(session, changed=[(("a", 0), again)]) == (77, 1, [again], [wanted(offset=9)])
    assert session.key_of(session.topic_of("", A), A, 0) is None
    assert session.key_of(session.topic_of("", B), B, 0) == ("a", 0)
    by_name = opened(wanted(offset=9), by_id=False)
    assert build(by_name, changed=[(("a", 0), again)], by_id=False) == (77, 1, [again], [])


def test_names_and_ids_do_not_mix() -> None:
    session = opened(wanted())
    assert build(session, [wanted()], by_id=False) == (77, 0, [wanted()], []), "the old one is closed"
    assert session.answered(78, 1, True)
    assert session.key_of(session.topic_of("a", ZERO_UUID), ZERO_UUID, 0) == ("a", 0)
    assert build(session, [wanted()]) == (78, 0, [wanted()], [])


def test_no_slot() -> None:
    session = FetcherSession()
    build(session, [wanted()])
    assert session.answered(0, 1, True)
    assert build(session, [wanted()]) == (0, 0, [wanted()], [])


def test_closed_by_the_leader() -> None:
    session = opened(wanted())
    build(session)
    assert session.answered(0, 0, True)
    assert build(session, [wanted()]) == (0, 0, [wanted()], [])


def test_epoch_wraps_to_one() -> None:
    session = opened(wanted())
    session.epoch = 2**31 - 1
    assert session.answered(77, 0, True)
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (77, 0)),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (77, 0)),
        (ErrorCode.UNKNOWN_SERVER_ERROR, (77, 0)),
    ],
)
def test_refused(code: ErrorCode, expected: tuple[int, int]) -> None:
    session = opened(wanted())
    build(session)
    session.refused(code)
    assert build(session, [wanted()])[:2] == expected


def test_lost() -> None:
    session = opened(wanted())
    build(session)
    session.lost()
    assert build(session, [wanted()]) == (77, 0, [wanted()], []), "whichever it is in, it is closed"


@pytest.mark.parametrize(("partitions", "known"), [(0, True), (2, True), (1, False)])
def test_full_answer_that_does_not_fit(partitions: int, known: bool) -> None:
    session = FetcherSession()
    build(session, [wanted()])
    assert not session.answered(77, partitions, known)
    assert build(session, [wanted()])[:2] == (0, 0)


def test_incremental_answer_that_does_not_fit() -> None:
    session = opened(wanted())
    build(session)
    assert not session.answered(77, 1, False)
    assert build(session, [wanted()])[:2] == (77, 0)
