"""Which process has which task now: assigned to one of its members, or being revoked from one.

What is revoked counts until the member has said that it closed it. A member is counted with its process: when either
changes, take away what was counted before and count it anew. Source: `StreamsGroup` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter

from barnabas.coordinator.group.streams.tasks import HeldTasks, Task, TaskSet, each_task

_Processes = dict[Task, Counter[str]]


class TaskOwners:
    """Of one group; empty at first. Reading never changes it."""

    def __init__(self) -> None:
        self._active: _Processes = {}
        self._standby: _Processes = {}
        self._warmup: _Processes = {}

    def add(self, process_id: str, held: HeldTasks) -> None:
        """A member of the process has these tasks, or is revoking them."""
        _add(self._active, process_id, held.active)
        _add(self._standby, process_id, held.standby)
        _add(self._warmup, process_id, held.warmup)

    def remove(self, process_id: str, held: HeldTasks) -> None:
        """Take back an `add` with the same arguments."""
        _remove(self._active, process_id, held.active)
        _remove(self._standby, process_id, held.standby)
        _remove(self._warmup, process_id, held.warmup)

    def is_active(self, task: Task) -> bool:
        """Whether any process has the task as active."""
        return task in self._active

    def has(self, process_id: str, task: Task) -> bool:
        """Whether the process has the task, in whatever role."""
        return (
            process_id in self._active.get(task, ())
            or process_id in self._standby.get(task, ())
            or process_id in self._warmup.get(task, ())
        )


def _add(processes: _Processes, process_id: str, tasks: TaskSet) -> None:
    for task in each_task(tasks):
        processes.setdefault(task, Counter())[process_id] += 1


def _remove(processes: _Processes, process_id: str, tasks: TaskSet) -> None:
    for task in each_task(tasks):
        counts = processes[task]
        counts[process_id] -= 1
        if not counts[process_id]:
            del counts[process_id]
        if not counts:
            del processes[task]
