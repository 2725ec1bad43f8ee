"""The assignor of streams groups, `sticky` (KIP-1071): tasks stay where they were as far as that is fair.

Quotas are per member: active tasks / members, and all tasks with their standbys / members, both rounded up. When a
member has exactly the quota, it and its tasks leave the sum, and the quota of the others is computed anew. Load of a
process: its tasks / its members.

1. Active tasks by partition, then subtopology: to who was to have them active, while he has less than the quota.
2. The rest, in the same order: to who was to have a standby, while he has less than the quota; of several the first,
   unless a later one has both less load in his process and fewer tasks.
3. The rest by subtopology, then partition: to the process with the least load, in it to the member with the fewest.
4. Standbys, of stateful tasks by partition, then subtopology, from the end: to who had the task active before, else to
   one of those who had a standby, where the process lacks the task and the member has less than the quota of all tasks.
5. What is left, by subtopology, then partition, from the end: to the process with the least load that lacks the task.
   If there is none, the task has fewer standbys.

Steps 1 and 2 look at the last target, not at what members have now. Equal loads are decided as in Apache Kafka: by the
orders of Java's hash tables and heaps (`java_order`). Two members whose ids fall into one slot of the table come in
the order of their ids; there it depends on what the group's own table went through. Racks and lags are not looked at,
and no warm-up tasks are given, as in Apache Kafka 4.3, whose `StickyTaskAssignor` is the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from barnabas.coordinator.group.streams.java_order import hash_order, pop, push, text_order
from barnabas.coordinator.group.streams.tasks import NO_TASKS, Task, Tasks, each_task

NAME: Final = "sticky"


class AssignedMember(NamedTuple):
    """A member, and its part of the last target."""

    process_id: str
    active: Mapping[str, frozenset[int]] = NO_TASKS
    standby: Mapping[str, frozenset[int]] = NO_TASKS


class Work(Protocol):
    """A subtopology's tasks, 0 to `tasks` − 1; a `configured.ConfiguredSubtopology` is one."""

    @property
    def tasks(self) -> int: ...
    @property
    def is_stateful(self) -> bool: ...


def assign_sticky(
    members: Mapping[str, AssignedMember], subtopologies: Mapping[str, Work], standby_replicas: int
) -> dict[str, Tasks]:
    """The next target of every member. standby_replicas: how many standbys a stateful task is to have."""
    if not members:
        return {}
    order = sorted(subtopologies, key=text_order)
    tasks = [(subtopology, partition) for subtopology in order for partition in range(subtopologies[subtopology].tasks)]
    # Stable: within a partition subtopologies stay in order.
    tasks.sort(key=itemgetter(1))
    stateful = [task for task in tasks if subtopologies[task[0]].is_stateful] if standby_replicas > 0 else []
    rank = {subtopology: position for position, subtopology in enumerate(order)}
    group = _Group(members, len(tasks), len(stateful) * standby_replicas)
    left = group.give_back(tasks)
    left.sort(key=lambda task: (rank[task[0]], task[1]))
    group.spread(left)
    if stateful:
        short = group.keep_standbys(stateful[::-1], standby_replicas)
        short.sort(key=lambda some: (rank[some[0][0]], some[0][1]), reverse=True)
        group.spread_standbys(short)
    return {
        member_id: Tasks(_task_set(group.members[member_id].active), _task_set(group.members[member_id].standby))
        for member_id in members
    }


class _Member:
    """load: how many tasks it has by now."""

    __slots__ = ("active", "load", "process", "standby")

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.load = 0.0
        self.active: list[Task] = []
        self.standby: list[Task] = []


class _Process:
    """load: its tasks for each member. by_load: a heap of its members, while it is right."""

    __slots__ = ("by_load", "load", "members", "tasks")

    def __init__(self) -> None:
        self.load = 0.0
        self.members: dict[str, _Member] = {}
        self.tasks: set[Task] = set()
        self.by_load: list[_Member] | None = None

    def least_loaded(self) -> _Member:
        """Its member with the fewest tasks, out of the heap if it has several."""
        if len(self.members) == 1:
            return next(iter(self.members.values()))
        if self.by_load is None:
            self.by_load = []
            for member_id in hash_order(self.members):
                push(self.by_load, self.members[member_id])
        return pop(self.by_load)

    def put_back(self, member: _Member) -> None:
        """After `least_loaded`, and what was given to it."""
        if self.by_load is not None:
            push(self.by_load, member)


class _Quota:
    """How many tasks a member may have, while some have that many."""

    __slots__ = ("each", "members", "tasks")

    def __init__(self, tasks: int, members: int) -> None:
        self.tasks = tasks
        self.members = members
        self.each = -(-tasks // members)

    def reached(self, count: float) -> None:
        """A member has so many now."""
        if count == self.each:
            self.members -= 1
            self.tasks -= self.each
            self.each = -(-self.tasks // self.members) if self.members else 0


class _Group:
    """What has been given by now, and what there was before."""

    def __init__(self, members: Mapping[str, AssignedMember], active: int, standbys: int) -> None:
        self.members: dict[str, _Member] = {}
        self.quota_active = _Quota(active, len(members))
        self.quota = _Quota(active + standbys, len(members))
        self.had_active: dict[Task, _Member] = {}
        self.had_standby: dict[Task, list[_Member]] = {}
        processes: dict[str, _Process] = {}
        for member_id in hash_order(sorted(members, key=text_order)):
            before = members[member_id]
            process = processes.setdefault(before.process_id, _Process())
            member = process.members[member_id] = self.members[member_id] = _Member(process)
            for task in each_task(before.active):
                self.had_active[task] = member
            for task in each_task(before.standby):
                self.had_standby.setdefault(task, []).append(member)
        self.processes = [processes[process_id] for process_id in hash_order(processes, len(members))]

    def give_back(self, tasks: Iterable[Task]) -> list[Task]:
        """Active tasks to those who were to have them, active or as a standby. Returns the rest."""
        left: list[Task] = []
        for task in tasks:
            member = self.had_active.get(task)
            if member is not None and member.load < self.quota_active.each:
                self._give_active(member, task)
            else:
                left.append(task)
        if not self.had_standby:
            return left
        nobodys: list[Task] = []
        for task in left:
            member = self._standby_before(task)
            if member is not None and member.load < self.quota_active.each:
                self._give_active(member, task)
            else:
                nobodys.append(task)
        return nobodys

    def spread(self, tasks: Iterable[Task]) -> None:
        """Active tasks to where there are fewest."""
        by_load = self._by_load()
        for task in tasks:
            process = pop(by_load)
            member = process.least_loaded()
            self._give_active(member, task)
            process.put_back(member)
            push(by_load, process)

    def keep_standbys(self, tasks: Iterable[Task], replicas: int) -> list[tuple[Task, int]]:
        """Standbys to those who know the task. Returns the tasks that want more, and how many."""
        short: list[tuple[Task, int]] = []
        for task in tasks:
            for given in range(replicas):
                member = self.had_active.get(task)
                if member is None or task in member.process.tasks or member.load >= self.quota.each:
                    member = self._standby_without(task)
                if member is None or member.load >= self.quota.each:
                    short.append((task, replicas - given))
                    break
                member.process.by_load = None
                self._give_standby(member, task)
        return short

    def spread_standbys(self, short: Iterable[tuple[Task, int]]) -> None:
        """Standbys to where there are fewest tasks; fewer than wanted if each process has the task."""
        by_load = self._by_load()
        for task, replicas in short:
            for _ in range(replicas):
                if not self._spread_standby(by_load, task):
                    break

    def _spread_standby(self, by_load: list[_Process], task: Task) -> bool:
        passed: list[_Process] = []
        process = None
        while process is None and by_load:
            process = pop(by_load)
            if task in process.tasks:
                passed.append(process)
                process = None
        if process is not None:
            member = process.least_loaded()
            self._give_standby(member, task)
            process.put_back(member)
            push(by_load, process)
        for full in reversed(passed):
            push(by_load, full)
        return process is not None

    def _by_load(self) -> list[_Process]:
        by_load: list[_Process] = []
        for process in self.processes:
            push(by_load, process)
        return by_load

    def _give_active(self, member: _Member, task: Task) -> None:
        self._count(member, task)
        member.active.append(task)
        self.quota_active.reached(member.load)
        self.quota.reached(member.load)

    def _give_standby(self, member: _Member, task: Task) -> None:
        self._count(member, task)
        member.standby.append(task)
        self.quota.reached(member.load)

    @staticmethod
    def _count(member: _Member, task: Task) -> None:
        process = member.process
        process.tasks.add(task)
        process.load = len(process.tasks) / len(process.members)
        member.load += 1

    def _standby_before(self, task: Task) -> _Member | None:
        """Who was to have a standby: the first, or a later one with less load in the process and fewer tasks."""
        return self._lightest(self.had_standby.get(task), None)

    def _standby_without(self, task: Task) -> _Member | None:
        """The same, whose process lacks the task; None if the first one's has it."""
        before = self.had_standby.get(task)
        return None if before is None or task in before[0].process.tasks else self._lightest(before, task)

    @staticmethod
    def _lightest(before: list[_Member] | None, lacking: Task | None) -> _Member | None:
        if before is None:
            return None
        best = before[0]
        for member in before[1:]:
            is_lighter = member.process.load < best.process.load and member.load < best.load
            if is_lighter and (lacking is None or lacking not in member.process.tasks):
                best = member
        return best


def _task_set(tasks: list[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, list[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, []).append(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
