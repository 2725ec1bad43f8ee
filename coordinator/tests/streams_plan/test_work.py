"""How much is done for a topology: no more than it is large, however it is made. Clients make them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from barnabas.coordinator.group.streams.configured import Status, configure
from barnabas.coordinator.group.streams.java_order import hash_order
from barnabas.coordinator.group.streams.sticky import AssignedMember, assign_sticky
from barnabas.coordinator.group.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from barnabas.coordinator.tests.streams_plan.randoms import Job, random_topology
from barnabas.kproto import KafkaError


class Counted(tuple[Any, ...]):
    """Topics; counts how many were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            Counted.looks += 1
            yield each


def looks_at(topology: Topology, partitions: dict[str, int]) -> int:
    """How many topics are looked at until it is configured."""
    Counted.looks = 0
    found = configure(topology, partitions)
    assert found.problem is not None
    assert found.problem.status is Status.MISSING_INTERNAL_TOPICS
    return Counted.looks


def chain(length: int) -> Topology:
    """Each subtopology reads what the one after it writes, in the order in which they are taken."""
    ids = hash_order([str(number) for number in range(length)])
    found = {}
    for at, subtopology_id in enumerate(ids):
        is_last = at == length - 1
        reads = () if is_last else (TopicInfo(f"r{at + 1}"),)
        sinks = Counted([f"r{at}"]) if at else Counted()
        found[subtopology_id] = Subtopology(
            subtopology_id, ("in",) if is_last else (), (), (), sinks, Counted(reads), ()
        )
    return Topology(0, found)


def many_groups(count: int) -> Topology:
    """Many copartition groups, each of one repartition topic."""
    reads = tuple(TopicInfo(f"r{at}") for at in range(count))
    groups = tuple(CopartitionGroup((), (), (at,)) for at in range(count))
    writer = Subtopology("0", ("in",), repartition_sink_topics=Counted(topic.name for topic in reads))
    return Topology(0, {"0": writer, "1": Subtopology("1", (), (), (), (), Counted(reads), groups)})


def many_sinks(count: int) -> Topology:
    """One subtopology that reads much and writes much."""
    reads = tuple(TopicInfo(f"r{at}") for at in range(count))
    names = Counted(topic.name for topic in reads)
    both = Subtopology("0", ("in",), repartition_sink_topics=names, repartition_source_topics=Counted(reads))
    return Topology(0, {"0": both})


@pytest.mark.parametrize("make", [chain, many_groups, many_sinks])
def test_twice_the_topology_is_twice_the_work(make: Any) -> None:
    some, twice = (looks_at(make(size), {"in": 3}) for size in (100, 200))
    assert 0 < twice <= 2.1 * some


def by_rounds(topology: Topology, partitions: dict[str, int]) -> dict[str, int] | None:
    """Counts of repartition topics as Apache Kafka finds them: rounds over all, until nothing is left; None: no end."""
    in_order = [topology.subtopologies[each] for each in hash_order(topology.subtopologies)]
    reads = [topic for each in in_order for topic in each.repartition_source_topics]
    decided = {topic.name: topic.partitions for topic in reads if topic.partitions}
    while True:
        is_waiting = has_found = False
        for each in in_order:
            for sink in each.repartition_sink_topics:
                known = [partitions[topic] for topic in each.source_topics]
                known += [decided[topic.name] for topic in each.repartition_source_topics if topic.name in decided]
                if sink not in decided and known:
                    decided[sink] = max(known)
                    has_found = True
                elif sink not in decided:
                    is_waiting = True
        if not is_waiting:
            return decided if all(topic.name in decided for topic in reads) else None
        if not has_found:
            return None


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_rounds_over_all_subtopologies_find(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        topology, partitions = random_topology(rng)
        plain = {key: each._replace(copartition_groups=()) for key, each in topology.subtopologies.items()}
        if any(topic not in partitions for each in plain.values() for topic in each.source_topics):
            continue
        counts = by_rounds(Topology(0, plain), partitions)
        reads = {topic.name for each in plain.values() for topic in each.repartition_source_topics}
        if counts is None or any(not tuple(each.inputs) for each in plain.values()):
            with pytest.raises(KafkaError):
                configure(Topology(0, plain), partitions)
            continue
        wanted = configure(Topology(0, plain), partitions).wanted
        found = {name: each.partitions for name, each in wanted.items() if name in reads}
        assert found == {name: counts[name] for name in reads}, seed


class Part(frozenset[int]):
    """A member's part of a target; counts how many partitions it is compared with."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        Part.looks += len(self)
        return super().__iter__()

    def intersection(self, *others: Any) -> frozenset[int]:
        Part.looks += sum(map(len, others))
        return super().intersection(*others)


@pytest.mark.parametrize("members", [10, 100])
def test_each_member_is_asked_for_its_own_tasks_only(members: int) -> None:
    """Not for all that there are: that would be members times tasks."""
    tasks = 1000
    parts = [{"0": Part(range(at, tasks, members))} for at in range(members)]
    before = {f"m{at}": AssignedMember(f"p{at}", part, parts[at - 1]) for at, part in enumerate(parts)}
    Part.looks = 0
    after = assign_sticky(before, {"0": Job(tasks, True)}, 1)
    assert 0 < Part.looks <= 2 * tasks
    assert {name: (each.active, each.standby) for name, each in after.items()} == {
        name: (each.active, each.standby) for name, each in before.items()
    }
