"""Which process has which task now: assigned to one of its members, or being revoked from one.

What is revoked counts until the member has said that it closed it. A member is counted with its process: when either
changes, take away what was counted before and count it anew. Source: `StreamsGroup` of Apache Kafka 4.3.

A topology may have very many tasks, so they are kept, and asked for, as the sets that members have, not one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.coordinator.group.streams.tasks import HeldTasks

_Held = dict[str, dict[str, list[Collection[int]]]]
"""By subtopology and process, the partitions of each of its members."""


class TaskOwners:
    """Of one group; empty at first. Reading never changes it."""

    def __init__(self) -> None:
        self._active: _Held = {}
        self._standby: _Held = {}
        self._warmup: _Held = {}

    def add(self, process_id: str, held: HeldTasks) -> None:
        """A member of the process has these tasks, or is revoking them."""
        for role, tasks in self._by_role(held):
            for subtopology, partitions in tasks.items():
                role.setdefault(subtopology, {}).setdefault(process_id, []).append(partitions)

    def remove(self, process_id: str, held: HeldTasks) -> None:
        """Take back an `add` with the same arguments."""
        for role, tasks in self._by_role(held):
            for subtopology, partitions in tasks.items():
                processes = role[subtopology]
                processes[process_id].remove(partitions)
                if not processes[process_id]:
                    del processes[process_id]
                if not processes:
                    del role[subtopology]

    def _by_role(self, held: HeldTasks) -> Iterable[tuple[_Held, Mapping[str, Collection[int]]]]:
        return (self._active, held.active), (self._standby, held.standby), (self._warmup, held.warmup)

    def active(self, subtopology: str, partitions: frozenset[int]) -> set[int]:
        """Which of these any process has as active."""
        found: set[int] = set()
        for of_process in self._active.get(subtopology, {}).values():
            _add_common(found, partitions, of_process)
        return found

    def of(self, process_id: str, subtopology: str, partitions: frozenset[int]) -> set[int]:
        """Which of these the process has, in whatever role."""
        found: set[int] = set()
        for role in (self._active, self._standby, self._warmup):
            _add_common(found, partitions, role.get(subtopology, {}).get(process_id, ()))
        return found


def _add_common(found: set[int], partitions: frozenset[int], all_held: Iterable[Collection[int]]) -> None:
    for held in all_held:
        if len(held) < len(partitions):
            found.update(partitions.intersection(held))
        else:
            found.update(filter(held.__contains__, partitions))
