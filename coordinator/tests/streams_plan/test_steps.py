"""A member's steps, case by case; that they are Apache Kafka's in all cases is test_against_kafka's."""

from __future__ import annotations

from random import Random

from barnabas.coordinator.group.epochs.records import LAST_EPOCH
from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing, Target, reconcile
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks
from barnabas.coordinator.tests.streams_plan.group_model import Group
from barnabas.coordinator.tests.streams_plan.randoms import Job

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED
NOTHING = Tasks()


def some(*partitions: int) -> dict[str, frozenset[int]]:
    return {"0": frozenset(partitions)}


def held(epoch: int, *partitions: int) -> dict[str, dict[int, int]]:
    return {"0": dict.fromkeys(partitions, epoch)}


def step(standing: Standing, target: Target, owned: Tasks | None, **others: HeldTasks) -> Standing | None:
    """One step of a member of process P; others by process."""
    owners = TaskOwners()
    for process_id, tasks in [("P", standing.assigned), ("P", standing.revoking), *others.items()]:
        owners.add(process_id, tasks)
    return reconcile(standing, target, "P", owned, owners)


def test_a_second_process_joins() -> None:
    """As Apache Kafka 4.3.1 did over the wire: four tasks, one standby each, member a in P1, b in P2."""
    group = Group(Random(0), {"0": Job(4, True)}, 1)

    def heartbeat(member_id: str) -> Standing:
        group.heartbeat(member_id)
        group.check_owners()
        return group.standings[member_id]

    group.join("a", "P1")
    group.epoch = 3
    group.assign()
    assert heartbeat("a") == Standing(3, 0, STABLE, HeldTasks(held(3, 0, 1, 2, 3)))
    group.join("b", "P2")
    group.assign()
    assert heartbeat("b") == Standing(4, 0, UNRELEASED, HeldTasks({}, some(0, 1)))
    kept, gone = held(3, 0, 1), held(3, 2, 3)
    assert heartbeat("a") == Standing(3, 3, UNREVOKED, HeldTasks(kept), HeldTasks(gone))
    assert group.clients["a"].runs == Tasks(some(0, 1))
    assert heartbeat("b") == Standing(4, 4, UNRELEASED, HeldTasks({}, some(0, 1))), "a may still run the others"
    assert heartbeat("b") == Standing(4, 4, UNRELEASED, HeldTasks({}, some(0, 1))), "nothing more to write down"
    assert heartbeat("a") == Standing(4, 3, UNRELEASED, HeldTasks(kept)), "its process had the standbys a moment ago"
    assert heartbeat("b") == Standing(4, 4, STABLE, HeldTasks(held(4, 2, 3), some(0, 1)))
    assert heartbeat("a") == Standing(4, 4, STABLE, HeldTasks(kept, some(2, 3)))
    assert group.is_stable


def test_a_settled_member_stays_as_it_is() -> None:
    settled = Standing(5, 4, STABLE, HeldTasks(held(4, 0)))
    assert step(settled, Target(5, Tasks(some(0))), None) is settled
    assert step(settled, Target(5, NOTHING), NOTHING) is settled, "the target of its epoch is what it has"


def test_a_new_target_that_changes_nothing_moves_the_epoch_only() -> None:
    before = Standing(5, 4, STABLE, HeldTasks(held(4, 0)))
    assert step(before, Target(7, Tasks(some(0))), None) == Standing(7, 5, STABLE, HeldTasks(held(4, 0)))


def test_what_is_revoked_waits_for_the_member_to_say_so() -> None:
    before = Standing(5, 4, STABLE, HeldTasks(held(4, 0, 1)))
    target = Target(6, Tasks(some(0)))
    asked = Standing(5, 5, UNREVOKED, HeldTasks(held(4, 0)), HeldTasks(held(4, 1)))
    assert step(before, target, None) == asked
    assert step(before, target, Tasks(some(0, 1))) == asked
    assert step(asked, target, None) is asked
    assert step(asked, target, Tasks(some(1))) is asked
    done = Standing(6, 5, STABLE, HeldTasks(held(4, 0)))
    assert step(asked, target, Tasks(some(0))) == done
    assert step(before, target, Tasks(some(0))) == Standing(6, 5, STABLE, HeldTasks(held(4, 0))), "never had it open"


def test_a_member_that_joins_again_owns_nothing() -> None:
    asked = Standing(5, 5, UNREVOKED, HeldTasks(held(4, 0)), HeldTasks(held(4, 1)))
    assert step(asked, Target(8, Tasks(some(0))), NOTHING) == Standing(8, 5, STABLE, HeldTasks(held(4, 0)))


def test_a_target_that_changed_while_it_revoked() -> None:
    asked = Standing(5, 5, UNREVOKED, HeldTasks(held(4, 0, 2)), HeldTasks(held(4, 1)))
    again = step(asked, Target(9, Tasks(some(2))), Tasks(some(0, 2)))
    assert again == Standing(6, 5, UNREVOKED, HeldTasks(held(4, 2)), HeldTasks(held(4, 0)))
    back = step(asked, Target(9, Tasks(some(0, 1, 2))), Tasks(some(0, 2)))
    assert back == Standing(9, 5, UNRELEASED, HeldTasks(held(4, 0, 2))), "what it closed is free a step later"


def test_the_last_epoch_does_not_rise() -> None:
    asked = Standing(LAST_EPOCH, 4, UNREVOKED, HeldTasks(held(4, 0, 2)), HeldTasks(held(4, 1)))
    again = step(asked, Target(LAST_EPOCH, Tasks(some(2))), Tasks(some(0, 2)))
    assert again == Standing(LAST_EPOCH, LAST_EPOCH, UNREVOKED, HeldTasks(held(4, 2)), HeldTasks(held(4, 0)))
    done = step(again, Target(LAST_EPOCH, Tasks(some(2))), Tasks(some(2)))
    assert done == Standing(LAST_EPOCH, LAST_EPOCH, STABLE, HeldTasks(held(4, 2)))


def test_an_active_task_waits_for_whoever_has_it_active() -> None:
    before, target = Standing(5, 4), Target(6, Tasks(some(0, 1)))
    after = step(before, target, NOTHING, Q=HeldTasks(held(2, 0), some(1)))
    assert after == Standing(6, 5, UNRELEASED, HeldTasks(held(6, 1))), "a standby elsewhere is not in the way"


def test_a_standby_waits_for_its_own_process_only() -> None:
    before, target = Standing(5, 4), Target(6, Tasks(standby=some(0, 1), warmup={"1": frozenset([0])}))
    free = step(before, target, NOTHING, Q=HeldTasks(held(2, 0), some(1)))
    assert free == Standing(6, 5, STABLE, HeldTasks({}, some(0, 1), {"1": frozenset([0])}))
    owners = TaskOwners()
    owners.add("P", HeldTasks(held(2, 0), warmup=some(1)))
    waits = reconcile(before, target, "P", NOTHING, owners)
    assert waits == Standing(6, 5, UNRELEASED, HeldTasks({}, {}, {"1": frozenset([0])}))


def test_a_role_changes_by_closing_and_opening() -> None:
    before, target = Standing(5, 4, STABLE, HeldTasks({}, some(0))), Target(6, Tasks(some(0)))
    asked = step(before, target, None)
    assert asked == Standing(5, 5, UNREVOKED, HeldTasks(), HeldTasks({}, some(0)))
    closed = step(asked, target, NOTHING)
    assert closed == Standing(6, 5, UNRELEASED)
    assert step(closed, target, None) == Standing(6, 6, STABLE, HeldTasks(held(6, 0)))


def test_a_state_of_a_newer_release_is_fenced_until_the_member_has_nothing() -> None:
    assert MemberState.stored(9) is MemberState.UNKNOWN
    before = Standing(5, 4, MemberState.stored(9), HeldTasks(held(4, 0)))
    target = Target(6, Tasks(some(0)))
    assert step(before, target, None) is None
    assert step(before, target, Tasks(some(0))) is None
    assert step(before, target, NOTHING) == Standing(6, 5, STABLE, HeldTasks(held(4, 0)))
