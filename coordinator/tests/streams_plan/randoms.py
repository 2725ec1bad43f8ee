"""Random topologies, groups and standings; all from the generator that is passed in."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any, NamedTuple

from barnabas.coordinator.group.streams.tasks import Tasks
from barnabas.coordinator.group.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology


class Job(NamedTuple):
    """A subtopology's work."""

    tasks: int
    is_stateful: bool


def random_id(rng: Random) -> str:
    """Of a member or a process, as clients make them."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def random_jobs(rng: Random, most: int = 12) -> dict[str, Job]:
    """Numbered as Kafka Streams does."""
    jobs = {str(at): Job(rng.randint(1, most), rng.random() < 0.6) for at in range(rng.randint(1, 5))}
    if rng.random() < 0.3:
        # So few standbys that the two quotas are the same.
        return {key: Job(1 if job.is_stateful else job.tasks, job.is_stateful) for key, job in jobs.items()}
    return jobs


def random_tasks(rng: Random, jobs: dict[str, Job], density: float) -> dict[str, frozenset[int]]:
    """Each task with the given chance."""
    found = {
        subtopology: frozenset(number for number in range(job.tasks) if rng.random() < density)
        for subtopology, job in jobs.items()
    }
    return {subtopology: numbers for subtopology, numbers in found.items() if numbers}


def random_roles(rng: Random, jobs: dict[str, Job], density: float) -> Tasks:
    """No task in two roles."""
    roles: tuple[dict[str, set[int]], ...] = ({}, {}, {})
    for subtopology, numbers in random_tasks(rng, jobs, density).items():
        for number in numbers:
            roles[rng.choice((0, 0, 1, 1, 2))].setdefault(subtopology, set()).add(number)
    return Tasks(*({key: frozenset(numbers) for key, numbers in role.items()} for role in roles))


def random_topology(rng: Random) -> tuple[Topology, dict[str, int]]:
    """Of up to a dozen subtopologies, right or wrong; and the topics that there are."""
    sources = [f"in{number}" for number in range(rng.randint(1, 5))]
    repartition = [f"r{number}" for number in range(rng.randint(0, 8))]
    usual = rng.choice((1, 3, 4))
    is_mixed = rng.random() < 0.3
    partitions = {topic: usual if not is_mixed and rng.random() < 0.7 else rng.randint(1, 8) for topic in sources}
    if rng.random() < 0.05:
        del partitions[rng.choice(sources)]
    ids = [str(number) for number in range(rng.randint(1, 12))]
    # A repartition topic has one reader; it and its writers are any two, mostly an earlier one.
    readers = {topic: rng.choice(ids) for topic in repartition}
    writers: dict[str, list[str]] = {subtopology_id: [] for subtopology_id in ids}
    for topic in repartition:
        earlier = ids[: ids.index(readers[topic])] or ids
        for _ in range(rng.choice((1, 1, 2, 3)) if is_mixed else 1 if rng.random() < 0.9 else rng.choice((0, 2))):
            writers[rng.choice(earlier if rng.random() < 0.95 else ids)].append(topic)
    some_are_fixed = rng.random() < 0.3
    found: dict[str, Subtopology] = {}
    rng.shuffle(ids)
    for subtopology_id in ids:
        reads = [
            TopicInfo(topic, rng.choice((usual, 5)) if some_are_fixed and rng.random() < 0.3 else 0, rng.choice((0, 3)))
            for topic in repartition
            if readers[topic] == subtopology_id
        ]
        own = rng.sample(sources, rng.randint(0 if reads and rng.random() < 0.9 else 1, min(2, len(sources))))
        if rng.random() < 0.02:
            own = []
        changelogs = [
            TopicInfo(f"c{subtopology_id}-{number}", 0, rng.choice((0, -1, 2)), (("cleanup.policy", "compact"),))
            for number in range(rng.choice((0, 1, 2)))
        ]
        groups = []
        for _ in range(0 if is_mixed else rng.choice((0, 1, 1, 2))):
            picked = rng.sample(range(len(own)), rng.randint(0, len(own)))
            also = rng.sample(range(len(reads)), rng.randint(0, len(reads)))
            groups.append(CopartitionGroup(tuple(picked), (), tuple(also)))
        found[subtopology_id] = Subtopology(
            subtopology_id,
            tuple(own),
            (),
            tuple(changelogs),
            tuple(writers[subtopology_id]),
            tuple(reads),
            tuple(groups),
        )
    return Topology(0, found), partitions


def unrelated_counts_matter(topology: Topology) -> bool:
    """Whether a group of repartition topics alone stands beside fixed ones outside it: there Apache Kafka 4.3 takes
    those for the group's (`configured`).
    """
    reads = {topic.name: topic for each in topology.subtopologies.values() for topic in each.repartition_source_topics}
    fixed = {name for name, topic in reads.items() if topic.partitions}
    groups = [
        each.copartitioned(group) for each in topology.subtopologies.values() for group in each.copartition_groups
    ]
    return any(group and group <= reads.keys() and not fixed <= group for group in groups)


def json_jobs(jobs: dict[str, Job]) -> dict[str, Any]:
    return {subtopology: list(job) for subtopology, job in jobs.items()}
