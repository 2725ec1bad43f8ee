"""The table of states: every transition is walked by requests and time, and nothing else is possible."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import TRANSITIONS, Event, State
from barnabas.coordinator.group.deadlines import GroupDeadlines
from barnabas.coordinator.machine import Now
from barnabas.coordinator.tests.kit import QUICK, Kit, assignment_of
from barnabas.kproto import ErrorCode


def _empty() -> Kit:
    kit = Kit()
    kit.answer(kit.commit_offsets({("t", 0): 1}))
    return kit


def _preparing() -> Kit:
    kit = Kit()
    ids = kit.stable(2)
    kit.join(ids[0])
    return kit


def _completing() -> Kit:
    kit = Kit()
    kit.joined(kit.join(kit.member()))
    return kit


def _stable() -> Kit:
    kit = Kit()
    kit.stable(1)
    return kit


MAKE: dict[State, Callable[[], Kit]] = {
    State.EMPTY: _empty,
    State.PREPARING_REBALANCE: _preparing,
    State.COMPLETING_REBALANCE: _completing,
    State.STABLE: _stable,
}


def _rebalance(kit: Kit) -> None:
    if kit.state() == "Empty":
        # A second id is pending, so the first generation is not formed at once.
        kit.config = kit.shard.config
        kit.shard.set_config(type(QUICK)(group_initial_rebalance_delay_ms=3000))
    kit.join(version=3)


def _formed(kit: Kit) -> None:
    for member in kit.shard.groups["g"].members:
        if member.joining is None:
            kit.join(member.member_id)


def _no_members(kit: Kit) -> None:
    kit.leave(*[member.member_id for member in kit.shard.groups["g"].members])


def _assigned(kit: Kit) -> None:
    group = kit.shard.groups["g"]
    assert group.leader is not None
    kit.sync(group.leader, group.generation, {group.leader: b"all"})


def _unloaded(kit: Kit) -> None:
    kit.run(kit.shard.unload(kit.now))


def _deleted(kit: Kit) -> None:
    # The record of a group is gone with its tombstone; one that has none is dropped.
    kit.member()
    token = kit.token()
    group = kit.shard.groups["g"]
    for partition in group.offsets.partitions():
        group.offsets.remove(partition)
    kit.run_all(kit.shard.delete_group("g", token, kit.now))
    assert kit.answer(token) == ErrorCode.NONE


DO: dict[Event, Callable[[Kit], None]] = {
    Event.REBALANCE: _rebalance,
    Event.FORMED: _formed,
    Event.NO_MEMBERS: _no_members,
    Event.ASSIGNED: _assigned,
    Event.UNLOADED: _unloaded,
    Event.DELETED: _deleted,
}

WALKS = [
    (state, event, target)
    for state, events in TRANSITIONS.items()
    for event, target in events.items()
    if event is not Event.LOADED
]


@pytest.mark.parametrize(("state", "event", "target"), WALKS, ids=lambda value: value.name)
def test_every_transition_is_reached(state: State, event: Event, target: State) -> None:
    kit = MAKE[state]()
    group = kit.shard.groups["g"]
    assert group.state is state
    DO[event](kit)
    assert group.state is target


def test_loading_makes_a_stored_generation_stable() -> None:
    kit = Kit()
    (member_id,) = kit.stable(1)
    before = kit.shard.groups["g"]
    kit.restart()
    assert before.state is State.DEAD
    group = kit.shard.groups["g"]
    assert group.state is State.STABLE
    assert group.members[member_id].assignment == assignment_of(member_id, 1)
    assert TRANSITIONS[State.EMPTY][Event.LOADED] is State.STABLE


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_nothing_outside_the_table_is_possible(state: State, event: Event) -> None:
    if event in TRANSITIONS[state]:
        return
    group = ClassicState("g", QUICK, GroupDeadlines())
    group.state = state
    with pytest.raises(KeyError):
        group.fire(event, Now(0, 0))


def test_dead_is_the_end() -> None:
    assert not TRANSITIONS[State.DEAD]
    assert {target for events in TRANSITIONS.values() for target in events.values()} == set(State)


def test_the_table_is_apache_kafkas() -> None:
    """Its `ClassicGroupState`: each state with those it may come from. A group that is read from the log is put into
    Stable there without a transition; here that is one.
    """
    came_from = {
        State.EMPTY: {State.PREPARING_REBALANCE},
        State.PREPARING_REBALANCE: {State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE},
        State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
        State.STABLE: {State.COMPLETING_REBALANCE, State.EMPTY},
        State.DEAD: set(State) - {State.DEAD},
    }
    found = {state: {old for old, events in TRANSITIONS.items() if state in events.values()} for state in State}
    assert found == came_from
    assert [old for old, events in TRANSITIONS.items() if Event.LOADED in events] == [State.EMPTY]
