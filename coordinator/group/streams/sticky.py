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

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

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
    raise NotImplementedError
