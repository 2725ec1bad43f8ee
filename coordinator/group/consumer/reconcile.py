"""How one member of a next-generation consumer group gets from what it has to what it is to have (KIP-848), a step per
heartbeat.

    STABLE ──new target──▶ UNREVOKED (must give something up) ──gave it up──▶ STABLE, or
      ▲                                                                        UNRELEASED (waits for others)
      └───────────────────────────all there─────────────────────────────────────┘

A member moves to the epoch of the target only when it has revoked all that is not in it; partitions that another
member still has are assigned when they are free. A changed subscription takes effect immediately: topics that are no
longer subscribed to are revoked before there is a new target. Values in, a value out: the group decides when to call,
and turns a changed value into a record. Numbers are those of `ConsumerGroupCurrentMemberAssignmentValue`. Source:
`CurrentAssignmentBuilder` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordinator.group.consumer.assignors import TopicId

Held = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which the member got it. No topic is empty."""


class MemberState(IntEnum):
    STABLE = 0
    """It has the target, as far as it may at its epoch."""
    UNREVOKED = 1
    """It has to revoke partitions, and is asked to with each heartbeat."""
    UNRELEASED = 2
    """Partitions of its target are still with others."""
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
    """A member's assignment and epoch. `revoking`: partitions that it was asked to revoke; no other member gets them
    before. `previous_epoch`: a member that did not get the last answer sends it.
    """

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Held
    revoking: Held


class Target(NamedTuple):
    """What the assignor made of the group at `epoch`, for this member."""

    epoch: int
    partitions: Mapping[TopicId, Collection[int]]


def reconcile(
    standing: Standing,
    target: Target,
    subscribed: Collection[TopicId],
    subscription_changed: bool,
    owned: Mapping[TopicId, Collection[int]] | None,
    is_free: Callable[[TopicId, int], bool],
) -> Standing | None:
    """The next step, or `standing` itself if there is none. None: fence the member, as its partitions are not known.

    `owned`: the partitions that the member reports; None if it reports none, as nothing changed. `is_free`: whether no
    member has the partition, nor is revoking it, this member included.
    """
    if standing.state is MemberState.UNKNOWN and (owned is None or owned):
        return None
    is_settled = standing.state is MemberState.STABLE and standing.epoch == target.epoch
    if is_settled or (standing.state is MemberState.UNREVOKED and _still_owns(owned, standing.revoking)):
        return _unsubscribe(standing, subscribed, owned) if subscription_changed else standing
    return _towards(standing, target, subscribed, owned, is_free)


def _towards(
    standing: Standing,
    target: Target,
    subscribed: Collection[TopicId],
    owned: Mapping[TopicId, Collection[int]] | None,
    is_free: Callable[[TopicId, int], bool],
) -> Standing:
    assigned: dict[TopicId, dict[int, int]] = {}
    revoking: dict[TopicId, dict[int, int]] = {}
    gained: dict[TopicId, dict[int, int]] = {}
    waits = False
    for topic in {**target.partitions, **standing.assigned}:
        wanted = set(target.partitions.get(topic, ())) if topic in subscribed else set()
        has = standing.assigned.get(topic, {})
        _put(assigned, topic, {partition: epoch for partition, epoch in has.items() if partition in wanted})
        _put(revoking, topic, {partition: epoch for partition, epoch in has.items() if partition not in wanted})
        missing = wanted.difference(has)
        # The member may take back what it has just revoked.
        given_up = standing.revoking.get(topic, ())
        free = {partition: target.epoch for partition in missing if partition in given_up or is_free(topic, partition)}
        _put(gained, topic, free)
        waits = waits or len(free) < len(missing)
    if revoking and _still_owns(owned, revoking):
        return Standing(standing.epoch, standing.epoch, MemberState.UNREVOKED, assigned, revoking)
    for topic, partitions in gained.items():
        assigned[topic] = {**assigned.get(topic, {}), **partitions}
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return Standing(target.epoch, standing.epoch, state, assigned, {})


def _unsubscribe(
    standing: Standing, subscribed: Collection[TopicId], owned: Mapping[TopicId, Collection[int]] | None
) -> Standing:
    """Revoke topics that are no longer subscribed to, at the present epoch."""
    gone = {topic: partitions for topic, partitions in standing.assigned.items() if topic not in subscribed}
    if not gone:
        return standing
    assigned = {topic: partitions for topic, partitions in standing.assigned.items() if topic in subscribed}
    revoking = dict(standing.revoking)
    for topic, partitions in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **partitions}
    if _still_owns(owned, revoking):
        return Standing(standing.epoch, standing.epoch, MemberState.UNREVOKED, assigned, revoking)
    return standing._replace(previous_epoch=standing.epoch, assigned=assigned)


def _still_owns(owned: Mapping[TopicId, Collection[int]] | None, revoking: Held) -> bool:
    """A member that does not list its partitions owns what it had."""
    if owned is None:
        return True
    return any(partition in revoking.get(topic, ()) for topic, partitions in owned.items() for partition in partitions)


def _put(into: dict[TopicId, dict[int, int]], topic: TopicId, partitions: dict[int, int]) -> None:
    if partitions:
        into[topic] = partitions
