"""How one member of a streams group gets from what it has to what it is to have (KIP-1071), a step per heartbeat.

    STABLE ──new target──▶ UNREVOKED (must close something) ──closed it──▶ STABLE, or
      ▲                                                                    UNRELEASED (waits for others)
      └───────────────────────────all there────────────────────────────────────┘

A member moves to the epoch of the target only when it has closed all that is not in it. It gets an active task when no
process has it as active and its own has it in no role; a standby or warm-up task when its own process has it in no
role. Roles are changed by revoking and giving, never in place.

Values in, a value out: the group decides when to call, and turns a changed value into a record. Each step writes down
the epoch before it as the previous one, also where the epoch stays: after two steps at one epoch the older is gone. A
member that waits for others therefore changes once more at its next heartbeat, and then no more until something is
free.

Numbers are those of `StreamsGroupCurrentMemberAssignmentValue`. Source: `CurrentAssignmentBuilder` of Apache Kafka 4.3,
where an epoch rises beyond the last one to the least, with which the member can do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordinator.group.epochs.records import LAST_EPOCH
from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.tasks import HeldTasks, TaskEpochs, Tasks, TaskSet

_Frozen = Mapping[str, frozenset[int]]


class MemberState(IntEnum):
    STABLE = 1
    """It has the target of its epoch."""
    UNREVOKED = 2
    """It has to close tasks, and is asked to."""
    UNRELEASED = 3
    """Tasks of its target are still with others."""
    UNKNOWN = 127
    """A newer release wrote a state that this one does not know."""

    @classmethod
    def stored(cls, number: int) -> MemberState:
        """The state in a record."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class Standing(NamedTuple):
    """Where a member stands. `revoking`: tasks that it was asked to close; no other member gets them before it has.
    `previous_epoch`: a member that did not get the last answer sends it.
    """

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = HeldTasks()
    revoking: HeldTasks = HeldTasks()

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """The member epoch at which it got the active task, which it has or is revoking. None if it has not. Offsets
        of the task's partitions may be committed with this epoch and any later one.
        """
        for held in (self.assigned, self.revoking):
            epoch = held.active.get(subtopology_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


class Target(NamedTuple):
    """What the assignor made of the group at `epoch`, for this member."""

    epoch: int
    tasks: Tasks = Tasks()


def reconcile(
    standing: Standing, target: Target, process_id: str, owned: Tasks | None, owners: TaskOwners
) -> Standing | None:
    """The next step, or `standing` itself if there is none. None: fence the member, as its tasks are not known.

    `owned`: the tasks that the member reports; None if it reports none, as nothing changed; empty for one that has just
    joined (again). `owners`: counts this member with `standing` too.
    """
    epoch = standing.epoch
    match standing.state:
        case MemberState.STABLE if epoch == target.epoch:
            return standing
        case MemberState.UNREVOKED:
            if owned is None or owned.has_any(standing.revoking):
                return standing
            epoch = min(epoch + 1, LAST_EPOCH)
        case MemberState.UNKNOWN:
            if owned is None or not owned.is_empty:
                return None
            epoch = target.epoch
    return _towards(standing, epoch, target, process_id, owned, owners)


def _towards(
    standing: Standing, epoch: int, target: Target, process_id: str, owned: Tasks | None, owners: TaskOwners
) -> Standing:
    """As far towards the target as it may. epoch: at which it stays if it has to close something."""
    has, wanted = standing.assigned, target.tasks

    def here(subtopology: str, partitions: frozenset[int]) -> set[int]:
        return owners.of(process_id, subtopology, partitions)

    def taken(subtopology: str, partitions: frozenset[int]) -> set[int]:
        return owners.active(subtopology, partitions) | here(subtopology, partitions)

    active, active_gone = _split_epochs(has.active, wanted.active)
    standby, standby_gone = _split(has.standby, wanted.standby)
    warmup, warmup_gone = _split(has.warmup, wanted.warmup)
    kept = HeldTasks(active, standby, warmup)
    revoking = HeldTasks(active_gone, standby_gone, warmup_gone)
    if not revoking.is_empty and (owned is None or owned.has_any(revoking)):
        return Standing(epoch, standing.epoch, MemberState.UNREVOKED, kept, revoking)
    active_new, active_waits = _free(has.active, wanted.active, taken)
    standby_new, standby_waits = _free(has.standby, wanted.standby, here)
    warmup_new, warmup_waits = _free(has.warmup, wanted.warmup, here)
    gained = {subtopology: dict.fromkeys(partitions, target.epoch) for subtopology, partitions in active_new.items()}
    assigned = kept.merged(HeldTasks(gained, standby_new, warmup_new))
    state = MemberState.UNRELEASED if active_waits or standby_waits or warmup_waits else MemberState.STABLE
    return Standing(target.epoch, standing.epoch, state, assigned)


def _split_epochs(has: TaskEpochs, wanted: _Frozen) -> tuple[TaskEpochs, TaskEpochs]:
    """What of `has` is wanted, and what is not."""
    kept: dict[str, Mapping[int, int]] = {}
    gone: dict[str, Mapping[int, int]] = {}
    for subtopology, epochs in has.items():
        common = epochs.keys() & wanted.get(subtopology, frozenset())
        if len(common) == len(epochs):
            kept[subtopology] = epochs
        elif not common:
            gone[subtopology] = epochs
        else:
            kept[subtopology] = {partition: epochs[partition] for partition in common}
            gone[subtopology] = {partition: epoch for partition, epoch in epochs.items() if partition not in common}
    return kept, gone


def _split(has: _Frozen, wanted: _Frozen) -> tuple[_Frozen, _Frozen]:
    """What of `has` is wanted, and what is not."""
    kept: dict[str, frozenset[int]] = {}
    gone: dict[str, frozenset[int]] = {}
    for subtopology, partitions in has.items():
        wants = wanted.get(subtopology, frozenset())
        if partitions & wants:
            kept[subtopology] = partitions & wants
        if partitions - wants:
            gone[subtopology] = partitions - wants
    return kept, gone


def _free(
    has: TaskSet, wanted: _Frozen, held: Callable[[str, frozenset[int]], set[int]]
) -> tuple[dict[str, frozenset[int]], bool]:
    """What is wanted, not had, and free; and whether something is not free. held: which of some partitions are not."""
    free: dict[str, frozenset[int]] = {}
    waits = False
    for subtopology, partitions in wanted.items():
        missing = partitions.difference(has.get(subtopology, ()))
        if not missing:
            continue
        found = missing - held(subtopology, missing)
        waits = waits or len(found) < len(missing)
        if found:
            free[subtopology] = found
    return free, waits
