"""Tasks in their roles: from lists and to lists, and what the steps of a member ask of them."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks, each_task, in_order, task_epochs, task_set
from barnabas.kproto.messages import StreamsGroupHeartbeatRequest

TaskIds = StreamsGroupHeartbeatRequest.TaskIds


def some(*partitions: int) -> dict[str, frozenset[int]]:
    return {"0": frozenset(partitions)}


def test_lists_become_sets_without_empty_ones() -> None:
    listed = [TaskIds(subtopology_id="1", partitions=[2, 0]), TaskIds(subtopology_id="0", partitions=[])]
    assert task_set(listed) == {"1": {0, 2}}
    twice = [TaskIds(subtopology_id="1", partitions=[2]), TaskIds(subtopology_id="1", partitions=[3])]
    assert task_set(twice) == {"1": {2, 3}}


def test_each_partition_may_be_listed_by_itself() -> None:
    """Nobody's heartbeat keeps the others waiting: with a copy for each entry this would take minutes."""
    listed = [TaskIds(subtopology_id="0", partitions=[number]) for number in range(100_000)]
    assert task_set(listed) == {"0": frozenset(range(100_000))}


def test_sets_are_listed_in_order() -> None:
    assert list(in_order({"1": {5, 2}, "0": {1}})) == [("0", [1]), ("1", [2, 5])]
    assert sorted(each_task({"1": {5, 2}, "0": {1}})) == [("0", 1), ("1", 2), ("1", 5)]


def test_tasks_without_epochs_were_given_at_the_members() -> None:
    assert task_epochs([("0", [1, 2], [3, 4]), ("1", [0], None), ("2", [], None)], 7) == {
        "0": {1: 3, 2: 4},
        "1": {0: 7},
    }
    assert task_epochs([("0", [1, 2], [3])], 7) == {"0": {1: 7, 2: 7}}, "not as many as there should be"


def test_roles_are_compared_each_for_itself() -> None:
    held = HeldTasks({"0": {0: 5, 1: 6}}, some(2), some(3))
    assert held.tasks == Tasks(some(0, 1), some(2), some(3))
    for tasks in (Tasks(some(1, 9)), Tasks(standby=some(2)), Tasks(warmup=some(3))):
        assert tasks.has_any(held)
    assert not Tasks(some(2, 3), some(0, 3), some(0, 1, 2)).has_any(held)
    assert not Tasks({"1": frozenset([0])}).has_any(held)
    assert Tasks().is_within(held)
    assert held.tasks.is_within(held)
    for tasks in (Tasks(some(0, 9)), Tasks(standby=some(3)), Tasks(warmup=some(2)), Tasks({"1": frozenset([0])})):
        assert not tasks.is_within(held)


def test_emptiness_looks_at_all_roles() -> None:
    assert Tasks().is_empty
    assert HeldTasks().is_empty
    for tasks in (Tasks(some(1)), Tasks(standby=some(1)), Tasks(warmup=some(1))):
        assert not tasks.is_empty
    for held in (HeldTasks({"0": {1: 1}}), HeldTasks(standby=some(1)), HeldTasks(warmup=some(1))):
        assert not held.is_empty


def test_merging_takes_the_later_epoch() -> None:
    first = HeldTasks({"0": {0: 1, 1: 1}}, some(4), some(6))
    second = HeldTasks({"0": {1: 2}, "1": {0: 2}}, some(5), {"1": frozenset([0])})
    merged = HeldTasks({"0": {0: 1, 1: 2}, "1": {0: 2}}, some(4, 5), {**some(6), "1": frozenset([0])})
    assert first.merged(second) == merged
    assert first.active == {"0": {0: 1, 1: 1}}
    assert first.merged(HeldTasks()) == first


def test_commits_are_judged_by_when_a_task_was_given() -> None:
    standing = Standing(9, 8, MemberState.UNREVOKED, HeldTasks({"0": {0: 3}}), HeldTasks({"0": {1: 5}}))
    assert standing.assignment_epoch("0", 0) == 3
    assert standing.assignment_epoch("0", 1) == 5, "it may still commit what it is closing"
    assert standing.assignment_epoch("0", 2) is None
    assert standing.assignment_epoch("1", 0) is None


def test_owners_are_processes() -> None:
    owners = TaskOwners()
    held = HeldTasks({"0": {0: 1}}, some(1), some(2))
    owners.add("P", held)
    owners.add("Q", HeldTasks(standby=some(0)))
    four = frozenset(range(4))
    assert owners.active("0", four) == {0}
    assert owners.of("P", "0", four) == {0, 1, 2}
    assert owners.of("Q", "0", four) == {0}
    assert owners.of("P", "0", frozenset((1, 3))) == {1}
    assert owners.of("P", "1", four) == owners.active("1", four) == set()
    owners.add("P", HeldTasks({"0": {0: 1}}))
    owners.remove("P", held)
    assert owners.active("0", four) == {0}, "another member of the process has it"
    owners.remove("P", HeldTasks({"0": {0: 1}}))
    assert owners.active("0", four) == owners.of("P", "0", four) == set()
    assert owners.of("Q", "0", four) == {0}


def test_very_many_tasks_are_asked_for_as_sets() -> None:
    """Not one by one: what a member has is counted by whom, not by task, and taken away as it was."""
    many = HeldTasks({"0": Untouchable.fromkeys(range(1000), 1)})
    owners = TaskOwners()
    owners.add("P", many)
    assert owners.active("0", frozenset((5, 1000))) == {5}
    owners.remove("P", many)
    assert owners.active("0", frozenset((5,))) == set()


class Untouchable(dict[int, int]):
    def __iter__(self) -> Any:
        raise AssertionError("all of it is looked through")
