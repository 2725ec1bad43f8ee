"""What the share coordinator is told of a share group's partitions: that they are to be known before members may get
them, that they begin elsewhere, that they are to be forgotten.

Each is a record, an effect when that is committed, and a record when the answer is there (`…d`):

    none ──initialize, begin_at──▶ initializing ──▶ initialized ──forget──▶ deleting ──▶ none

So a coordinator that dies between the two does it again: it is asked anew with the next heartbeat (initializing), or by
whoever wanted it (deleting). An effect about which nothing comes back is forgotten after
`initialize_retry_interval_ms`. Effects about one partition reach the share coordinators in their order.

A group may get members, or offsets, and lose the members again, while it is being removed: then what they left is
forgotten as well before it is gone. What an earlier group of the name has left all the same, as its coordinator died
meanwhile, has a later epoch than the present group: FENCED_STATE_EPOCH. It is deleted, by whom a record committed now
shows to be the coordinator still, and initialized again.

Differences from Apache Kafka: partitions of which the share coordinator has taken note are initialized though it failed
with others. Those with which it failed, or may not have, stay initializing: what it has of them is forgotten with the
group, and does not fence the next one of that name; there, what a member leaves that comes while a group is removed
fences the next one until its epoch is as high. One that was to begin elsewhere, and could not, is as it was.
Sources: KIP-932, `GroupMetadataManager`, `GroupCoordinatorService` of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.coordinator.group.answers import write_error
from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.share.group import ShareGroup
from barnabas.coordinator.group.share.state import with_partitions, without_partitions
from barnabas.coordinator.group.share.stored import (
    InitializedPartitions,
    NamedPartitions,
    StatePartitions,
    share_record,
)
from barnabas.coordinator.machine import Decision, Now
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")

NOT_KNOWN: Final = -1
Place = tuple[TopicId, int]
Codes = Mapping[Place, ErrorCode]
"""What the share coordinator answered, by topic id and partition."""


class InitializeState(NamedTuple):
    """Effect: tell the share coordinators (InitializeShareGroupState) that partitions begin anew, and call
    `ShareGroups.initialized` once. `starts`: −1 leaves it to the leader. `were_initialized`: those that were before.
    `token`: who wanted it; None: the group itself.
    """

    group_id: str
    state_epoch: int
    starts: Mapping[Place, int]
    were_initialized: frozenset[Place] = frozenset()
    token: Any = None


class DeleteState(NamedTuple):
    """Effect: have the share coordinators forget partitions (DeleteShareGroupState), and call `ShareGroups.deleted`
    once. `is_whole`: the group is to be removed with them. `is_left_over`: they are what an earlier group of the name
    has left; this one has them initializing.
    """

    group_id: str
    places: frozenset[Place]
    is_whole: bool
    token: Any
    is_left_over: bool = False


def initialize(
    group: ShareGroup, names: Iterable[str], state_epoch: int, retry_s: float, now: Now, out: Decision
) -> bool:
    """Have all partitions of topics `names` initialized that are not, nor are about to be. Returns whether there are
    any. Follows the records of a heartbeat. state_epoch: the group's, with these records.
    """
    present, missing = group.partitions, {}
    for name in sorted(names):
        topic = group.context.topics.by_name.get(name)
        if topic is None:
            continue
        known = present.initialized.get(topic.topic_id)
        if known is not None and len(known.partitions) >= topic.partition_count:
            continue
        wanted = [
            number
            for number in range(topic.partition_count)
            if (known is None or number not in known.partitions)
            and group.asked_at.get((topic.topic_id, number), now.seconds - retry_s) <= now.seconds - retry_s
        ]
        if wanted:
            missing[topic.topic_id] = NamedPartitions(name, frozenset(wanted))
    if not missing:
        return False
    places = _places(missing)
    following = InitializedPartitions(
        with_partitions(present.initializing, missing),
        present.initialized,
        {topic: name for topic, name in present.deleting.items() if topic not in missing},
    )
    _ask(group, following, InitializeState(group.group_id, state_epoch, dict.fromkeys(places, NOT_KNOWN)), now, out)
    return True


def begin_at(group: ShareGroup, starts: Mapping[Place, int], token: Any, now: Now, out: Decision) -> None:
    """Let partitions of topics that exist begin at these offsets (AlterShareGroupOffsets). The token is answered with
    `Codes`.
    """
    by_id, present = group.context.topics.by_id, group.partitions
    moved: dict[TopicId, NamedPartitions] = {}
    for topic, number in starts:
        before = moved.get(topic)
        numbers = frozenset((number,)) if before is None else before.partitions | {number}
        moved[topic] = NamedPartitions(by_id[topic].name, numbers)
    numbers_by_topic = {topic: named.partitions for topic, named in moved.items()}
    following = InitializedPartitions(
        with_partitions(present.initializing, moved),
        without_partitions(present.initialized, numbers_by_topic),
        {topic: name for topic, name in present.deleting.items() if topic not in moved},
    )
    were = frozenset(starts).intersection(_places(present.initialized))
    _ask(group, following, InitializeState(group.group_id, group.epoch, dict(starts), were, token), now, out)


def _ask(group: ShareGroup, following: InitializedPartitions, effect: InitializeState, now: Now, out: Decision) -> None:
    if following != group.partitions:
        out.records.append(share_record(StatePartitions(group.group_id, following)))
    before = {place: group.asked_at[place] for place in effect.starts if place in group.asked_at}
    group.asked_at.update(dict.fromkeys(effect.starts, now.seconds))

    is_answered = False

    def ask(then: Decision, _: Now) -> None:
        then.effects.append(effect._replace(token=None if is_answered else effect.token))

    def undo(instead: Decision, code: ErrorCode, appended: bool, _: Now) -> None:
        nonlocal is_answered
        if not appended:
            for place in effect.starts:
                group.asked_at.pop(place, None)
            group.asked_at.update(before)
        if effect.token is not None and not is_answered:
            instead.reply(effect.token, dict.fromkeys(effect.starts, write_error(code)))
        is_answered = True

    # Also without a record of its own: what it follows from may not be committed yet.
    out.when_committed(ask)
    out.if_failed(undo)


def initialized(group: ShareGroup, effect: InitializeState, codes: Codes, out: Decision) -> None:
    """The share coordinators have answered; a place without a code got none."""
    present = group.partitions
    waiting = _places(present.initializing).intersection(effect.starts)
    done = {place for place in waiting if codes.get(place) == ErrorCode.NONE}
    kept = {place for place in waiting - done if place in effect.were_initialized}
    fenced: set[Place] = set()
    if effect.state_epoch == group.epoch:
        fenced = {place for place in waiting - kept if codes.get(place) == ErrorCode.FENCED_STATE_EPOCH}
    moved = {
        topic: NamedPartitions(present.initializing[topic].topic_name, frozenset(numbers))
        for topic, numbers in _by_topic(done | kept).items()
    }
    following = InitializedPartitions(
        without_partitions(present.initializing, _by_topic(done | kept)),
        with_partitions(present.initialized, moved),
        present.deleting,
    )
    if len(done) < len(effect.starts):
        log.info(
            "share group %r: %d of %d partitions initialized: %s",
            group.group_id, len(done), len(effect.starts), sorted({code.name for code in codes.values() if code}),
        )  # fmt: skip
    for place in waiting:
        group.asked_at.pop(place, None)
    if fenced:
        left_over = DeleteState(group.group_id, frozenset(fenced), False, None, is_left_over=True)
        out.when_committed(lambda then, _: then.effects.append(left_over))
    if following != present or fenced:
        out.records.append(share_record(StatePartitions(group.group_id, following)))
    if effect.token is not None:
        told = {place: codes.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE) for place in effect.starts}
        out.reply_when_committed(effect.token, told, lambda code: dict.fromkeys(told, write_error(code)))


def forget(group: ShareGroup, topics: Collection[TopicId], is_whole: bool, token: Any, out: Decision) -> None:
    """Have topics of a group without members forgotten (DeleteShareGroupOffsets), and the group with them if it
    `is_whole`. The token is answered with `Codes`; for a whole group with an ErrorCode.
    """
    present = group.partitions
    places = {
        place for place in _places(present.initialized) | _places(present.initializing) if place[0] in topics
    } | _places_of_deleting(group, topics)
    names = {
        topic: named.topic_name
        for known in (present.initializing, present.initialized)
        for topic, named in known.items()
        if topic in topics
    }
    following = InitializedPartitions(
        {topic: named for topic, named in present.initializing.items() if topic not in topics},
        {topic: named for topic, named in present.initialized.items() if topic not in topics},
        {**present.deleting, **names},
    )
    effect = DeleteState(group.group_id, frozenset(places), is_whole, token)
    if not places:
        deleted(group, effect, {}, out)
        return
    is_answered = False

    def ask(then: Decision, _: Now) -> None:
        then.effects.append(effect._replace(token=None if is_answered else token))

    def undo(instead: Decision, code: ErrorCode, appended: bool, _: Now) -> None:
        nonlocal is_answered
        if token is not None and not is_answered:
            instead.reply(token, _told(effect, dict.fromkeys(effect.places, write_error(code))))
        is_answered = True

    if following != present:
        out.records.append(share_record(StatePartitions(group.group_id, following)))
    out.when_committed(ask)
    out.if_failed(undo)


def deleted(group: ShareGroup, effect: DeleteState, codes: Codes, out: Decision) -> None:
    """The share coordinators have answered; a place without a code got none."""
    codes = {place: codes.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE) for place in effect.places}
    failed = {topic for (topic, _), code in codes.items() if code != ErrorCode.NONE}
    present, told = group.partitions, _told(effect, codes)
    if effect.is_left_over:
        return
    is_to_go = effect.is_whole and not failed
    if is_to_go and group.is_empty:
        if _places(present.initializing) or _places(present.initialized):
            # Of a member that came and went meanwhile.
            forget(group, {topic for each in present for topic in each}, True, effect.token, out)
            return
        out.records.extend(map(share_record, group.tombstones()))
    else:
        if is_to_go:
            told = ErrorCode.NON_EMPTY_GROUP
        gone = {topic for topic, _ in effect.places} - failed
        following = present._replace(
            deleting={topic: name for topic, name in present.deleting.items() if topic not in gone}
        )
        if following != present:
            out.records.append(share_record(StatePartitions(group.group_id, following)))
    if effect.token is not None:
        out.reply_when_committed(
            effect.token, told, lambda code: _told(effect, dict.fromkeys(effect.places, write_error(code)))
        )


def without_topics(group: ShareGroup, names: Collection[str], out: Decision) -> None:
    """Topics of these names are gone from the cluster; the share coordinators see it themselves."""
    present, by_id = group.partitions, group.context.topics.by_id
    following = InitializedPartitions(
        {
            topic: named
            for topic, named in present.initializing.items()
            if topic in by_id or named.topic_name not in names
        },
        {
            topic: named
            for topic, named in present.initialized.items()
            if topic in by_id or named.topic_name not in names
        },
        {topic: name for topic, name in present.deleting.items() if topic in by_id or name not in names},
    )
    if following != present:
        out.records.append(share_record(StatePartitions(group.group_id, following)))


def _told(effect: DeleteState, codes: Codes) -> Codes | ErrorCode:
    if not effect.is_whole:
        return codes
    return next((code for code in codes.values() if code != ErrorCode.NONE), ErrorCode.NONE)


def _places(topics: Mapping[TopicId, NamedPartitions]) -> set[Place]:
    return {(topic, number) for topic, named in topics.items() for number in named.partitions}


def _places_of_deleting(group: ShareGroup, topics: Collection[TopicId]) -> set[Place]:
    """Of topics that were to be forgotten already: all of their partitions, as the record does not say which."""
    by_id = group.context.topics.by_id
    return {
        (topic, number)
        for topic in group.partitions.deleting
        if topic in topics and topic in by_id
        for number in range(by_id[topic].partition_count)
    }


def _by_topic(places: Iterable[Place]) -> dict[TopicId, set[int]]:
    found: dict[TopicId, set[int]] = {}
    for topic, number in places:
        found.setdefault(topic, set()).add(number)
    return found
