"""Each callback that waits for a commit is called once, whatever the calls set off."""

from __future__ import annotations

from functools import partial

from barnabas.kproto import ErrorCode
from barnabas.server.partitions.commit_queue import DROPPED_MAX, CommitQueue


def test_in_the_order_of_offsets_then_of_coming() -> None:
    queue, called = CommitQueue(), []
    for number, offset in enumerate((5, 3, 5, 9)):
        queue.add(offset, lambda code, number=number: called.append((number, code)))  # type: ignore[misc]
    queue.answer(2, ErrorCode.NONE)
    assert called == []
    queue.answer(5, ErrorCode.NONE)
    assert called == [(1, 0), (0, 0), (2, 0)]
    assert len(queue) == 1
    queue.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert called[3:] == [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert len(queue) == 0


def test_an_answer_that_ends_the_leadership() -> None:
    queue, called = CommitQueue(), []
    queue.add(1, lambda code: queue.give_up(ErrorCode.FENCED_LEADER_EPOCH))
    queue.add(1, called.append)
    queue.answer(1, ErrorCode.NONE)
    assert called == [ErrorCode.FENCED_LEADER_EPOCH]


def test_an_answer_that_drops_most_others() -> None:
    queue, called = CommitQueue(), []
    others = [partial(lambda number, code: called.append(number), number) for number in range(2 * DROPPED_MAX)]

    def first(code: ErrorCode) -> None:
        called.append(-1)
        for other in others[1:]:
            queue.drop(other)

    queue.add(0, first)
    for other in others:
        queue.add(1, other)
    queue.answer(1, ErrorCode.NONE)
    assert called == [-1, 0]
    assert len(queue) == 0
