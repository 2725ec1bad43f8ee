"""Tasks of a streams group in their three roles: active, standby and warm-up.

A task is the id of a subtopology and a partition. Sets of tasks are mappings from subtopology to partitions without
empty entries, so equal sets are equal values. Active tasks that a member has carry the member epoch at which it got
them, by which an offset commit with an older epoch is judged (KIP-1071; Apache Kafka's `TasksTuple` and
`TasksTupleWithEpochs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

Task = tuple[str, int]
"""Subtopology and partition."""

TaskSet = Mapping[str, Collection[int]]
"""Partitions by subtopology, none empty: frozensets, so that equal sets are equal."""

TaskEpochs = Mapping[str, Mapping[int, int]]
"""The epoch at which each task was given, by subtopology and partition; no subtopology is empty."""

NO_TASKS: Mapping[str, frozenset[int]] = MappingProxyType({})
NO_EPOCHS: TaskEpochs = MappingProxyType({})


class Tasks(NamedTuple):
    """Tasks in their roles: a target, or what a member says that it has."""

    active: Mapping[str, frozenset[int]] = NO_TASKS
    standby: Mapping[str, frozenset[int]] = NO_TASKS
    warmup: Mapping[str, frozenset[int]] = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)

    def has_any(self, held: HeldTasks) -> bool:
        """Whether a task of `held` is here in the same role."""
        return (
            _overlap(self.active, held.active)
            or _overlap(self.standby, held.standby)
            or _overlap(self.warmup, held.warmup)
        )

    def is_within(self, held: HeldTasks) -> bool:
        """Whether all of this is in `held`, each in the same role."""
        return (
            _within(self.active, held.active)
            and _within(self.standby, held.standby)
            and _within(self.warmup, held.warmup)
        )


class HeldTasks(NamedTuple):
    """Tasks that a member has, or is to revoke. Active ones carry the epoch at which it got them."""

    active: TaskEpochs = NO_EPOCHS
    standby: Mapping[str, frozenset[int]] = NO_TASKS
    warmup: Mapping[str, frozenset[int]] = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task in any role."""
        return not (self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> Tasks:
        """The same without epochs."""
        active = {subtopology: frozenset(epochs) for subtopology, epochs in self.active.items()}
        return Tasks(active, self.standby, self.warmup)

    def merged(self, other: HeldTasks) -> HeldTasks:
        """All tasks of both; of an active task that both have, the epoch of `other`."""
        active = dict(self.active)
        for subtopology, epochs in other.active.items():
            active[subtopology] = {**active.get(subtopology, {}), **epochs}
        return HeldTasks(active, _union(self.standby, other.standby), _union(self.warmup, other.warmup))


class ListedTasks(Protocol):
    """The tasks of one subtopology, in a message or a record."""

    subtopology_id: str
    partitions: list[int]


def task_set(listed: Iterable[ListedTasks]) -> Mapping[str, frozenset[int]]:
    """Tasks of a message or record as a set. A subtopology that stands there twice has the tasks of both."""
    found: dict[str, set[int]] = {}
    for tasks in listed:
        if tasks.partitions:
            found.setdefault(tasks.subtopology_id, set()).update(tasks.partitions)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}


def task_epochs(listed: Iterable[tuple[str, Sequence[int], Sequence[int] | None]], member_epoch: int) -> TaskEpochs:
    """Active tasks of a record: subtopology, partitions, and the epoch of each. Where the epochs are missing, or not as
    many as the partitions, the tasks were given at `member_epoch`.
    """
    found: dict[str, dict[int, int]] = {}
    for subtopology, partitions, epochs in listed:
        if epochs is None or len(epochs) != len(partitions):
            epochs = [member_epoch] * len(partitions)
        if partitions:
            found.setdefault(subtopology, {}).update(zip(partitions, epochs, strict=True))
    return found


def in_order(tasks: TaskSet) -> Iterator[tuple[str, list[int]]]:
    """Subtopologies by id, their partitions ascending: as lists in records and answers are."""
    for subtopology in sorted(tasks):
        yield subtopology, sorted(tasks[subtopology])


def each_task(tasks: TaskSet) -> Iterator[Task]:
    """The tasks one by one, in no order that matters."""
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield subtopology, partition


def _overlap(tasks: TaskSet, others: TaskSet) -> bool:
    return any(
        any(map(others[subtopology].__contains__, partitions))
        for subtopology, partitions in tasks.items()
        if subtopology in others
    )


def _within(tasks: TaskSet, others: TaskSet) -> bool:
    return all(
        subtopology in others and all(map(others[subtopology].__contains__, partitions))
        for subtopology, partitions in tasks.items()
    )


def _union(tasks: Mapping[str, frozenset[int]], others: Mapping[str, frozenset[int]]) -> Mapping[str, frozenset[int]]:
    if not others:
        return tasks
    return {**tasks, **{key: tasks.get(key, frozenset()).union(more) for key, more in others.items()}}
