"""The assignor, case by case; that it is Apache Kafka's in all cases is test_against_kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordinator.group.streams.sticky import AssignedMember, assign_sticky
from barnabas.coordinator.group.streams.tasks import Tasks
from barnabas.coordinator.tests.streams_plan.randoms import Job

Members = Mapping[str, AssignedMember]


def some(*partitions: int, subtopology: str = "0") -> dict[str, frozenset[int]]:
    return {subtopology: frozenset(partitions)} if partitions else {}


def after(target: Mapping[str, Tasks], members: Members, **joined: str) -> dict[str, AssignedMember]:
    """The same members with their target, and members that have joined, by process."""
    kept = {key: AssignedMember(members[key].process_id, target[key].active, target[key].standby) for key in members}
    return kept | {key: AssignedMember(process_id) for key, process_id in joined.items()}


def joins(**processes: str) -> dict[str, AssignedMember]:
    return after({}, {}, **processes)


STATEFUL = {"0": Job(4, True)}


def test_the_first_member_gets_all() -> None:
    assert assign_sticky(joins(a="P1"), STATEFUL, 1) == {"a": Tasks(some(0, 1, 2, 3))}


def test_a_second_member_takes_half_and_each_stands_by_for_the_other() -> None:
    """As Apache Kafka 4.3.1 did over the wire."""
    first = assign_sticky(joins(a="P1"), STATEFUL, 1)
    second = assign_sticky(after(first, joins(a="P1"), b="P2"), STATEFUL, 1)
    assert second == {"a": Tasks(some(0, 1), some(2, 3)), "b": Tasks(some(2, 3), some(0, 1))}


def test_nothing_moves_that_need_not() -> None:
    members = joins(a="P1", b="P2", c="P3")
    jobs = {"0": Job(5, True), "1": Job(4, False)}
    target = assign_sticky(members, jobs, 1)
    assert assign_sticky(after(target, members), jobs, 1) == target


def test_a_standby_takes_over() -> None:
    members = joins(a="P1", b="P2")
    before = assign_sticky(members, STATEFUL, 1)
    left = {key: member for key, member in after(before, members).items() if key != "a"}
    left["c"] = AssignedMember("P3")
    target = assign_sticky(left, STATEFUL, 1)
    # It stays with two, and has the least to load: what it stood by for goes to the new one.
    assert target["b"].active == before["b"].active
    assert target["c"].active == before["b"].standby
    alone = assign_sticky({"b": left["b"]}, STATEFUL, 1)
    assert alone == {"b": Tasks(some(0, 1, 2, 3))}


def test_stateless_tasks_have_no_standbys() -> None:
    target = assign_sticky(joins(a="P1", b="P2"), {"0": Job(2, False), "1": Job(2, True)}, 1)
    assert all(set(tasks.standby) <= {"1"} for tasks in target.values())
    assert sum(len(tasks.standby.get("1", ())) for tasks in target.values()) == 2


def test_a_process_never_has_a_task_twice() -> None:
    assert all(not tasks.standby for tasks in assign_sticky(joins(a="P", b="P", c="P"), STATEFUL, 2).values())
    target = assign_sticky(joins(a="P", b="P", c="Q"), STATEFUL, 2)
    assert sum(len(tasks.standby.get("0", ())) for tasks in target.values()) == 4, "one each, though two were wanted"


def test_a_process_with_more_members_has_more() -> None:
    target = assign_sticky(joins(a="P", b="P", c="P", d="Q"), {"0": Job(8, False)}, 0)
    assert [len(tasks.active["0"]) for tasks in target.values()] == [2, 2, 2, 2]


def test_more_members_than_tasks() -> None:
    target = assign_sticky(joins(**{f"m{number}": f"P{number}" for number in range(9)}), STATEFUL, 0)
    assert sorted(len(tasks.active.get("0", ())) for tasks in target.values()) == [0] * 5 + [1] * 4


def test_no_members_and_no_tasks() -> None:
    assert assign_sticky({}, STATEFUL, 1) == {}
    assert assign_sticky(joins(a="P"), {}, 1) == {"a": Tasks()}


def test_tasks_that_are_gone_are_forgotten() -> None:
    members = {"a": AssignedMember("P", some(0, 9) | some(1, subtopology="old"), some(8))}
    assert assign_sticky(members, {"0": Job(2, True)}, 1) == {"a": Tasks(some(0, 1))}


def test_the_order_in_which_members_are_given_does_not_matter() -> None:
    members = joins(**{f"m{number}": f"P{number % 3}" for number in range(7)})
    jobs = {"0": Job(10, True), "1": Job(3, False)}
    backwards = dict(reversed(members.items()))
    assert assign_sticky(members, jobs, 1) == assign_sticky(backwards, dict(reversed(jobs.items())), 1)
