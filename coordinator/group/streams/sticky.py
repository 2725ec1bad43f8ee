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

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from barnabas.coordinator.group.streams.java_order import again, hash_order, pop, push, text_order
from barnabas.coordinator.group.streams.tasks import NO_TASKS, Tasks

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
    numbers = _Numbers(subtopologies)
    stateful = numbers.stateful_by_partition() if standby_replicas > 0 else []
    group = _Group(members, numbers, len(stateful) * standby_replicas)
    left = group.give_back(numbers.by_partition)
    left.sort()
    group.spread(left)
    if stateful:
        short = group.keep_standbys(stateful[::-1], standby_replicas)
        short.sort(key=itemgetter(0), reverse=True)
        group.spread_standbys(short)
    target = {}
    for member_id in members:
        member = group.members[member_id]
        target[member_id] = Tasks(numbers.set_of(member.active), numbers.set_of(member.standby))
    return target


class _Numbers:
    """Tasks as numbers from 0, as there may be very many: by subtopology, then partition."""

    def __init__(self, subtopologies: Mapping[str, Work]) -> None:
        self._order = sorted(subtopologies, key=text_order)
        self._works = subtopologies
        self._ends = list(accumulate(subtopologies[subtopology].tasks for subtopology in self._order))
        self._begins = dict(zip(self._order, [0, *self._ends], strict=False))
        self.partition: list[int] = []
        for subtopology in self._order:
            self.partition.extend(range(subtopologies[subtopology].tasks))
        # Stable: within a partition subtopologies stay in order.
        self.by_partition = sorted(range(len(self.partition)), key=self.partition.__getitem__)

    def __len__(self) -> int:
        return len(self.partition)

    def stateful_by_partition(self) -> list[int]:
        """Those of stateful subtopologies, by partition, then subtopology."""
        is_stateful: list[bool] = []
        for subtopology in self._order:
            work = self._works[subtopology]
            is_stateful.extend(repeat(work.is_stateful, work.tasks))
        return list(filter(is_stateful.__getitem__, self.by_partition))

    def of(self, tasks: Mapping[str, frozenset[int]]) -> Iterator[int]:
        """The numbers of tasks, without those that there are not any more."""
        for subtopology, partitions in tasks.items():
            if subtopology in self._begins:
                begin, count = self._begins[subtopology], self._works[subtopology].tasks
                # Not one look at each task of the subtopology: members may be many.
                yield from map(begin.__add__, filter(range(count).__contains__, partitions))

    def set_of(self, tasks: list[int]) -> dict[str, frozenset[int]]:
        """The tasks of these numbers, which are sorted by this."""
        tasks.sort()
        found: dict[str, frozenset[int]] = {}
        begin = 0
        while begin < len(tasks):
            at = bisect_right(self._ends, tasks[begin])
            end = bisect_left(tasks, self._ends[at], begin)
            found[self._order[at]] = frozenset(map(self.partition.__getitem__, tasks[begin:end]))
            begin = end
        return found


class _Member:
    """load: how many tasks it has by now."""

    __slots__ = ("active", "load", "process", "standby")

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.load = 0.0
        self.active: list[int] = []
        self.standby: list[int] = []


class _Process:
    """load: its tasks for each member. count: of its tasks. tasks: which, when standbys are given. by_load: a heap of
    its members, while it is right. only: its member, if it has just one.
    """

    __slots__ = ("by_load", "count", "load", "members", "only", "tasks")

    def __init__(self) -> None:
        self.load = 0.0
        self.count = 0
        self.members: dict[str, _Member] = {}
        self.only: _Member | None = None
        self.tasks: set[int] = set()
        self.by_load: list[_Member] | None = None

    def least_loaded(self) -> _Member:
        """Its member with the fewest tasks: the first of the heap if it has several."""
        if self.only is not None:
            return self.only
        if self.by_load is None:
            self.by_load = []
            for member_id in hash_order(self.members):
                push(self.by_load, self.members[member_id])
        return self.by_load[0]


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

    def __init__(self, members: Mapping[str, AssignedMember], numbers: _Numbers, standbys: int) -> None:
        self.members: dict[str, _Member] = {}
        self.quota_active = _Quota(len(numbers), len(members))
        self.quota = _Quota(len(numbers) + standbys, len(members))
        self.had_active: list[_Member | None] = [None] * len(numbers)
        self.had_standby: dict[int, tuple[_Member, ...]] = {}
        processes: dict[str, _Process] = {}
        for member_id in hash_order(sorted(members, key=text_order)):
            before = members[member_id]
            process = processes.setdefault(before.process_id, _Process())
            member = process.members[member_id] = self.members[member_id] = _Member(process)
            for task in numbers.of(before.active):
                self.had_active[task] = member
            alone = (member,)
            for task in numbers.of(before.standby):
                others = self.had_standby.get(task)
                self.had_standby[task] = alone if others is None else (*others, member)
        for process in processes.values():
            if len(process.members) == 1:
                (process.only,) = process.members.values()
        self.processes = [processes[process_id] for process_id in hash_order(processes, len(members))]

    def give_back(self, tasks: Iterable[int]) -> list[int]:
        """Active tasks to those who were to have them, active or as a standby. Returns the rest."""
        left: list[int] = []
        had_active, quota_active, quota = self.had_active, self.quota_active, self.quota
        limit = quota_active.each
        for task in tasks:
            member = had_active[task]
            if member is None or member.load >= limit:
                left.append(task)
                continue
            member.active.append(task)
            member.load = load = member.load + 1
            if load >= limit or load == quota.each:
                quota_active.reached(load)
                quota.reached(load)
                limit = quota_active.each
        for process in self.processes:
            process.count = sum(len(member.active) for member in process.members.values())
            process.load = process.count / len(process.members)
        if not self.had_standby:
            return left
        nobodys: list[int] = []
        for task in left:
            member = self._standby_before(task)
            if member is not None and member.load < quota_active.each:
                process = member.process
                member.active.append(task)
                member.load += 1
                process.count += 1
                process.load = process.count / len(process.members)
                quota_active.reached(member.load)
                quota.reached(member.load)
            else:
                nobodys.append(task)
        return nobodys

    def spread(self, tasks: Iterable[int]) -> None:
        """Active tasks to where there are fewest."""
        by_load, quota = self._by_load(), self.quota
        limit = quota.each
        for task in tasks:
            process = by_load[0]
            process.count += 1
            member = process.only
            if member is not None:
                member.load = load = process.load = member.load + 1
            else:
                member = process.least_loaded()
                load = member.load + 1
                again(process.by_load or [member], load)
                process.load = process.count / len(process.members)
            member.active.append(task)
            if load == limit:
                quota.reached(load)
                limit = quota.each
            if len(by_load) > 1:
                again(by_load, process.load)

    def keep_standbys(self, tasks: Iterable[int], replicas: int) -> list[tuple[int, int]]:
        """Standbys to those who know the task. Returns the tasks that want more, and how many."""
        short: list[tuple[int, int]] = []
        had_active, quota = self.had_active, self.quota
        for process in self.processes:
            for each in process.members.values():
                process.tasks.update(each.active)
        limit = quota.each
        for task in tasks:
            for given in range(replicas):
                member = had_active[task]
                if member is None or member.load >= limit or task in member.process.tasks:
                    member = self._standby_without(task)
                if member is None or member.load >= limit:
                    short.append((task, replicas - given))
                    break
                member.process.by_load = None
                member.load += 1
                self._give_standby(member, task)
                if member.load == limit:
                    quota.reached(member.load)
                    limit = quota.each
        return short

    def spread_standbys(self, short: Iterable[tuple[int, int]]) -> None:
        """Standbys to where there are fewest tasks; fewer than wanted if each process has the task."""
        by_load = self._by_load()
        for task, replicas in short:
            for _ in range(replicas):
                process = by_load[0]
                if task not in process.tasks:
                    self._give_spread(process, task)
                    again(by_load, process.load)
                elif not self._pass_on(by_load, task):
                    break

    def _pass_on(self, by_load: list[_Process], task: int) -> bool:
        """A standby to the first process behind those that have the task; whether there is one."""
        passed: list[_Process] = []
        while by_load:
            process = pop(by_load)
            if task not in process.tasks:
                self._give_spread(process, task)
                push(by_load, process)
                break
            passed.append(process)
        is_given = bool(by_load)
        for full in reversed(passed):
            push(by_load, full)
        return is_given

    def _give_spread(self, process: _Process, task: int) -> None:
        member = process.least_loaded()
        if process.by_load is None:
            member.load += 1
        else:
            again(process.by_load, member.load + 1)
        self._give_standby(member, task)

    def _give_standby(self, member: _Member, task: int) -> None:
        """The member's load is what it is with the task."""
        process = member.process
        member.standby.append(task)
        process.tasks.add(task)
        process.count += 1
        process.load = process.count / len(process.members)

    def _by_load(self) -> list[_Process]:
        by_load: list[_Process] = []
        for process in self.processes:
            push(by_load, process)
        return by_load

    def _standby_before(self, task: int) -> _Member | None:
        """Who was to have a standby: the first, or a later one with less load in the process and fewer tasks."""
        return self._lightest(self.had_standby.get(task), None)

    def _standby_without(self, task: int) -> _Member | None:
        """The same, whose process lacks the task; None if the first one's has it."""
        before = self.had_standby.get(task)
        if before is None or task in before[0].process.tasks:
            return None
        return before[0] if len(before) == 1 else self._lightest(before, task)

    @staticmethod
    def _lightest(before: tuple[_Member, ...] | None, lacking: int | None) -> _Member | None:
        if before is None:
            return None
        best = before[0]
        for member in before[1:]:
            is_lighter = member.process.load < best.process.load and member.load < best.load
            if is_lighter and (lacking is None or lacking not in member.process.tasks):
                best = member
        return best
