"""Server-side assignors of the next-generation consumer groups (KIP-848): who gets which partitions.

Pure functions from members, with the partitions each is to have by now, to the next target. `range` gives each member a
run of neighbouring partitions of every topic, the same run of topics that have equally many, and forgets what was
before; `uniform` spreads all partitions evenly and moves as few as it can. Members and topics are taken in a fixed
order, so the same input gives the same target: members by id (for `range` static ones first, by instance id), topics
by id, as signed 64-bit halves. Apache Kafka takes members, and in one place topics, as a hash map has them; for the
order used here the results are its own.

A topic id is 16 bytes. Partitions that no longer exist are dropped. Sources: `RangeAssignor`,
`UniformHomogeneousAssignmentBuilder`, `UniformHeterogeneousAssignmentBuilder` of Apache Kafka 4.3. Racks are not looked
at, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

TopicId = bytes
Assignment = dict[TopicId, frozenset[int]]
"""What one member gets; only topics of which it gets something."""

_HALVES = Struct(">qq")
_MOST_ROUNDS: Final = 16
"""Of balancing topics whose subscribers differ. Two are enough unless subscriptions overlap; each about halves what is
left.
"""


class AssignedMember(NamedTuple):
    """What an assignor knows of a member. `topics`: its subscription. `assigned`: its part of the present target."""

    topics: frozenset[TopicId]
    assigned: Mapping[TopicId, frozenset[int]] = MappingProxyType({})
    instance_id: str | None = None


Members = Mapping[str, AssignedMember]
Assignor = Callable[[Members, Mapping[TopicId, int], bool], dict[str, Assignment]]
"""(members by id, partition counts by topic, whether all subscribe to the same) → the next target of every member.
Raises KeyError if a topic that is subscribed to has no count.
"""


def assign_range(
    members: Members, partition_counts: Mapping[TopicId, int], is_equal: bool = True
) -> dict[str, Assignment]:
    """The assignor `range`; it does the same whether subscriptions are equal or not."""

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    subscribers: dict[TopicId, int] = {}
    for member in members.values():
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    # Per topic: the next partition to give, the size of a run, and how many runs are longer by one.
    runs = {topic: [0, *divmod(partition_counts[topic], count)] for topic, count in subscribers.items()}
    target: dict[str, Assignment] = {}
    for member_id in sorted(members, key=order):
        given: Assignment = {}
        for topic in members[member_id].topics:
            run = runs[topic]
            start, size, longer = run
            end = start + size + (longer > 0)
            runs[topic] = [end, size, longer - (longer > 0)]
            if start < end:
                given[topic] = frozenset(range(start, end))
        target[member_id] = given
    return target


def assign_uniform(
    members: Members, partition_counts: Mapping[TopicId, int], is_equal: bool = True
) -> dict[str, Assignment]:
    """The assignor `uniform`. `is_equal` False: subscriptions differ by name, if not in the topics there are."""
    subscriptions = {member.topics for member in members.values()}
    if not is_equal or len(subscriptions) > 1:
        return _Unequal(members, partition_counts).target()
    topics = sorted(next(iter(subscriptions), ()), key=_HALVES.unpack)
    return _equal_subscriptions(members, {topic: partition_counts[topic] for topic in topics})


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})
"""By the name that clients ask for; the first one serves those who ask for none."""


def _equal_subscriptions(members: Members, counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    """All members subscribe to the same topics: each keeps what it has up to its quota; the rest goes to members below
    theirs.

    As many members as there are partitions left over may have one more: first those that have it already, as long as
    enough members follow to take what is left.
    """
    quota, longer = divmod(sum(counts.values()), max(len(members), 1))
    target: dict[str, dict[TopicId, set[int]]] = {}
    taken: set[tuple[TopicId, int]] = set()
    revoked: list[tuple[TopicId, int]] = []
    short: list[tuple[str, int]] = []
    for followers, member_id in zip(range(len(members) - 1, -1, -1), sorted(members), strict=True):
        is_longer = longer > 0
        room = quota + is_longer
        kept = target[member_id] = {}
        for topic, partitions in _existing(members[member_id].assigned, counts):
            taken.update((topic, partition) for partition in partitions)
            revoked.extend((topic, partition) for partition in partitions[room:])
            if room:
                kept[topic] = set(partitions[:room])
            room -= min(room, len(partitions))
        if room and is_longer and followers >= longer:
            room -= 1
            is_longer = False
        longer -= is_longer
        if room:
            short.append((member_id, room))
    free = [(topic, i) for topic, count in counts.items() for i in range(count) if (topic, i) not in taken]
    free += revoked
    start = 0
    for member_id, room in short:
        for topic, partition in free[start : start + room]:
            target[member_id].setdefault(topic, set()).add(partition)
        start += room
    return {member_id: _frozen(given) for member_id, given in target.items()}


class _Unequal:
    """Subscriptions differ: partitions without owner go to the member with the fewest, topic by topic; then, topic by
    topic until none changes, partitions move from the member with the most to the one with the fewest.

    Members are numbers, in the order of their ids.
    """

    def __init__(self, members: Members, partition_counts: Mapping[TopicId, int]) -> None:
        self.member_ids = sorted(members)
        self.sizes = [0] * len(members)
        self.subscribers: dict[TopicId, list[int]] = {}
        for number, member_id in enumerate(self.member_ids):
            for topic in members[member_id].topics:
                self.subscribers.setdefault(topic, []).append(number)
        self.owners: dict[TopicId, list[int | None]] = {
            topic: [None] * partition_counts[topic] for topic in self.subscribers
        }
        for number, member_id in enumerate(self.member_ids):
            member = members[member_id]
            for topic, partitions in _existing(member.assigned, partition_counts):
                if topic in member.topics:
                    for partition in partitions:
                        self.owners[topic][partition] = number
                    self.sizes[number] += len(partitions)

    def target(self) -> dict[str, Assignment]:
        # The topics that weigh most on their subscribers come first.
        order = sorted(self.subscribers, key=self._weight)
        for topic in order:
            self._give_free(topic)
        self._balance([topic for topic in order if len(self.subscribers[topic]) > 1])
        given: list[dict[TopicId, set[int]]] = [{} for _ in self.member_ids]
        for topic, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                if owner is not None:
                    given[owner].setdefault(topic, set()).add(partition)
        return {member_id: _frozen(each) for member_id, each in zip(self.member_ids, given, strict=True)}

    def _weight(self, topic: TopicId) -> tuple[float, int, tuple[int, ...]]:
        count = len(self.subscribers[topic])
        return (-len(self.owners[topic]) / count, count, _HALVES.unpack(topic))

    def _give_free(self, topic: TopicId) -> None:
        owners = self.owners[topic]
        levels = _Levels(self.subscribers[topic], self.sizes)
        for partition, owner in enumerate(owners):
            if owner is None:
                owners[partition] = taker = levels.next_taker()
                self.sizes[taker] += 1

    def _balance(self, topics: Sequence[TopicId]) -> None:
        last_changed: int | None = None
        for _ in range(_MOST_ROUNDS):
            for i, topic in enumerate(topics):
                if i == last_changed:
                    return
                if self._balance_topic(topic) or last_changed is None:
                    last_changed = i

    def _balance_topic(self, topic: TopicId) -> bool:
        """Whether something moved."""
        subscribers, owners, sizes = self.subscribers[topic], self.owners[topic], self.sizes
        if max(sizes[each] for each in subscribers) - min(sizes[each] for each in subscribers) <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            assert owner is not None
            held.setdefault(owner, []).append(partition)
        levels = _Levels(subscribers, sizes)
        moved = False
        while True:
            giver = levels.next_giver()
            while giver is not None and not held.get(giver):
                levels.exclude_giver()
                giver = levels.next_giver()
            if giver is None:
                return moved
            partition = held[giver].pop()
            taker = levels.next_taker()
            if levels.is_balanced:
                return moved
            owners[partition] = taker
            sizes[giver] -= 1
            sizes[taker] += 1
            moved = True


class _Levels:
    """Subscribers of one topic by how much they have, least first, and two groups that grow towards each other: the
    takers at the low end, each of whom gets one before any gets two; and the givers at the high end, likewise.

        sizes │        ###        A group is the members of one level. When all have had their turn its level moves by
              │     ######        one, and who stands at that level already joins it.
              │ ##########
    """

    def __init__(self, subscribers: Iterable[int], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._order = order = sorted(subscribers, key=lambda member: (sizes[member], member))
        self._takers_end = 0
        self._taker_level = sizes[order[0]] - 1
        self._taker = 0
        self._givers_start = self._givers_end = len(order)
        self._giver_level = sizes[order[-1]] + 1
        self._giver = len(order) - 1

    @property
    def is_balanced(self) -> bool:
        return self._giver_level - self._taker_level <= 1

    def next_taker(self) -> int:
        order, sizes = self._order, self._sizes
        if self._taker >= self._takers_end:
            self._taker_level += 1
            while self._takers_end < len(order) and sizes[order[self._takers_end]] == self._taker_level:
                self._takers_end += 1
            self._taker = 0
        taker = order[self._taker]
        self._taker += 1
        return taker

    def next_giver(self) -> int | None:
        order, sizes = self._order, self._sizes
        if self._giver < self._givers_start:
            if self._givers_end <= self._givers_start and self._givers_start > 0:
                # All members of the level were excluded; the next one may have any level.
                self._giver_level = sizes[order[self._givers_start - 1]]
            else:
                self._giver_level -= 1
            while self._givers_start > 0 and sizes[order[self._givers_start - 1]] == self._giver_level:
                self._givers_start -= 1
            self._giver = self._givers_end - 1
        if self._giver < 0:
            return None
        giver = order[self._giver]
        self._giver -= 1
        return giver

    def exclude_giver(self) -> None:
        """The latest giver has nothing of this topic."""
        order, at, last = self._order, self._giver + 1, self._givers_end - 1
        order[at], order[last] = order[last], order[at]
        self._givers_end = last


def _existing(
    assigned: Mapping[TopicId, frozenset[int]], counts: Mapping[TopicId, int]
) -> Iterable[tuple[TopicId, list[int]]]:
    """What of `assigned` is still there, in order."""
    for topic in sorted(assigned, key=_HALVES.unpack):
        partitions = sorted(partition for partition in assigned[topic] if partition < counts.get(topic, 0))
        if partitions:
            yield topic, partitions


def _frozen(given: Mapping[TopicId, Iterable[int]]) -> Assignment:
    return {topic: frozenset(partitions) for topic, partitions in given.items()}
