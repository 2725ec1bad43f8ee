"""The parts that every machine is made of."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.coordinator import Callback, Deadlines, Now, Record
from barnabas.coordinator.machine import NOTHING, Decision
from barnabas.kproto import ErrorCode


@pytest.mark.parametrize("seed", range(20))
def test_deadlines_fire_in_order_at_their_last_time(seed: int) -> None:
    random = Random(seed)
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, float] = {}
    now = 0.0
    for _ in range(3000):
        key = random.randrange(40)
        action = random.random()
        if action < 0.6:
            due = now + random.choice([0, 1, 5, 10, 100]) + random.random()
            deadlines.set(key, due)
            model[key] = due
        elif action < 0.7:
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            now += random.random() * 3
            while (fired := deadlines.pop(now)) is not None:
                earliest = min(model.values())
                assert model.pop(fired) == earliest <= now, f"seed {seed}"
            assert all(due > now for due in model.values()), f"seed {seed}"
        assert deadlines.next() == min(model.values(), default=None), f"seed {seed}"
        assert len(deadlines) == len(model)


def test_moved_deadlines_do_not_pile_up() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for i in range(100_000):
        deadlines.set("later", float(i))
        deadlines.set("sooner", float(-i))
        deadlines.cancel("sooner")
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 100


def test_a_decision_without_writes_is_just_its_replies() -> None:
    assert Decision().result() is NOTHING
    out = Decision()
    out.reply("token", "answer")
    assert out.result().replies == [("token", "answer")]
    assert out.result().failed is None


@pytest.mark.parametrize("appended", [False, True])
def test_a_failed_write_changes_the_dependent_replies_alone(appended: bool) -> None:
    told = []
    out = Decision()
    out.records.append(Record(b"k", b"v"))
    out.reply("a", "at once")
    out.reply_when_committed("b", "stored", lambda code: f"not stored: {code.name}")
    out.if_failed(lambda instead, code, appended, now: told.append((code, appended, now)))
    out.if_failed(lambda instead, code, appended, now: instead.reply("c", "more"))
    result = out.result()
    assert result.replies == [("a", "at once")]
    assert result.held == [("b", "stored")]
    assert result.failed is not None
    now = Now(1.0, 1000)
    instead = result.failed(ErrorCode.NOT_ENOUGH_REPLICAS, appended, now)
    assert instead.replies == [("b", "not stored: NOT_ENOUGH_REPLICAS"), ("c", "more")]
    assert not instead.records
    assert told == [(ErrorCode.NOT_ENOUGH_REPLICAS, appended, now)]


def test_a_callback_gets_the_answer_once() -> None:
    told: list[str | None] = []
    token = Callback(told.append, "a request of our own")
    token.reply("first")
    token.reply("second")
    assert token.release_waiters() == "a request of our own"
    assert told == ["first"]


def test_a_callback_whose_answer_does_not_come() -> None:
    told: list[str | None] = []
    assert Callback(told.append, "a request of our own").release_waiters() == "a request of our own"
    assert told == [None]
    assert Callback(told.append, lambda: "its client").release_waiters() == "its client"
    assert told == [None], "somebody else tells the client"
