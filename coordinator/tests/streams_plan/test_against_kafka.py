"""Random questions, answered by Apache Kafka 4.3.1's own classes and by ours: the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.coordinator.group.streams.configured import configure
from barnabas.coordinator.group.streams.java_order import text_order
from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.reconcile import Target, reconcile
from barnabas.coordinator.group.streams.sticky import AssignedMember, assign_sticky
from barnabas.coordinator.group.streams.tasks import HeldTasks
from barnabas.coordinator.group.streams.topology import Topology
from barnabas.coordinator.tests.streams_plan.oracle import (
    ask,
    read_held,
    read_roles,
    read_standing,
    read_tasks,
    told_configured,
    told_held,
    told_roles,
    told_standing,
    told_tasks,
    told_topology,
)
from barnabas.coordinator.tests.streams_plan.randoms import (
    Job,
    json_jobs,
    random_id,
    random_jobs,
    random_roles,
    random_tasks,
    random_topology,
    unrelated_counts_matter,
)
from barnabas.kproto import KafkaError

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


def assign_question(rng: Random, members: dict[str, AssignedMember], jobs: dict[str, Job], replicas: int) -> Any:
    listed = [
        [member_id, member.process_id, told_tasks(member.active), told_tasks(member.standby)]
        for member_id, member in sorted(members.items(), key=lambda pair: text_order(pair[0]))
    ]
    return {"what": "assign", "members": listed, "subtopologies": json_jobs(jobs), "replicas": replicas}


def assigned(question: Any) -> Any:
    members = {
        member_id: AssignedMember(process_id, read_tasks(active), read_tasks(standby))
        for member_id, process_id, active, standby in question["members"]
    }
    jobs = {key: Job(*job) for key, job in question["subtopologies"].items()}
    target = assign_sticky(members, jobs, question["replicas"])
    return {key: [told_tasks(tasks.active), told_tasks(tasks.standby)] for key, tasks in target.items()}


def group_life(rng: Random) -> list[Any]:
    """A group from its first member on: members join and leave, processes die, the topology's topics grow; each time
    the target is what ours made of the one before.
    """
    jobs = random_jobs(rng, rng.choice((3, 12, 40)))
    replicas = rng.choice((0, 0, 1, 1, 2, 3))
    processes = [random_id(rng) for _ in range(rng.choice((1, 2, 3, 6, 20)))]
    members: dict[str, AssignedMember] = {}
    asked = []
    for _ in range(12):
        for _ in range(rng.choice((1, 1, 2, 8))):
            action = rng.random()
            if not members or action < 0.6:
                members[random_id(rng)] = AssignedMember(rng.choice(processes))
            elif action < 0.85:
                del members[rng.choice(list(members))]
            elif action < 0.95:
                gone = rng.choice(processes)
                members = {key: member for key, member in members.items() if member.process_id != gone}
            else:
                jobs = {key: Job(job.tasks + rng.randint(0, 2), job.is_stateful) for key, job in jobs.items()}
        if not members:
            members[random_id(rng)] = AssignedMember(rng.choice(processes))
        asked.append(assign_question(rng, members, jobs, replicas))
        target = assign_sticky(members, jobs, replicas)
        members = {
            key: AssignedMember(member.process_id, target[key].active, target[key].standby)
            for key, member in members.items()
        }
    return asked


def any_group(rng: Random) -> Any:
    """Members whose last target no assignor would have made."""
    jobs = random_jobs(rng)
    processes = [random_id(rng) for _ in range(rng.randint(1, 6))]
    members = {
        random_id(rng): AssignedMember(
            rng.choice(processes), random_tasks(rng, jobs, 0.3), random_tasks(rng, jobs, rng.random() * 0.6)
        )
        for _ in range(rng.randint(1, 15))
    }
    return assign_question(rng, members, jobs, rng.randint(0, 3))


def any_step(rng: Random) -> Any:
    """One member, whatever it has and is to have, and whatever others have."""
    jobs = random_jobs(rng, 6)
    epoch = rng.randint(1, 8)
    state = rng.choice((1, 1, 2, 2, 3, 3, 127))
    owned = random_roles(rng, jobs, rng.choice((0.0, 0.2, 0.8)))

    def held(density: float) -> HeldTasks:
        roles = random_roles(rng, jobs, density)
        active = {key: {number: rng.randint(1, epoch) for number in numbers} for key, numbers in roles.active.items()}
        return HeldTasks(active, roles.standby, roles.warmup)

    has, revoking = held(rng.choice((0.0, 0.3, 0.8))), held(0.3 if state == 2 else 0.0)
    target = random_roles(rng, jobs, rng.choice((0.0, 0.4, 0.9)))
    if rng.random() < 0.5:
        target = has.tasks
    owners: list[dict[str, dict[str, list[str]]]] = [{}, {}, {}]
    for role, tasks in enumerate(random_roles(rng, jobs, rng.choice((0.1, 0.6)))):
        for key, numbers in tasks.items():
            most = 1 if role == 0 else 2
            owners[role][key] = {str(number): rng.sample(["P", "Q", "R"], rng.randint(1, most)) for number in numbers}
    return {
        "what": "step",
        "standing": [epoch, rng.randint(0, epoch), state, told_held(has), told_held(revoking)],
        "epoch": epoch + rng.choice((0, 0, 1, 3)),
        "target": told_roles(target),
        "process": "P",
        "owned": None if rng.random() < 0.3 else told_roles(owned),
        "owners": owners,
    }


def stepped(question: Any) -> Any:
    owners = TaskOwners()
    for role, tasks in enumerate(question["owners"]):
        for key, numbers in tasks.items():
            for number, processes in numbers.items():
                for process_id in processes:
                    roles: list[Any] = [{}, {}, {}]
                    roles[role] = {key: {number: 0} if role == 0 else [int(number)]}
                    owners.add(process_id, read_held(roles))
    owned = None if question["owned"] is None else read_roles(question["owned"])
    target = Target(question["epoch"], read_roles(question["target"]))
    return told_standing(reconcile(read_standing(question["standing"]), target, question["process"], owned, owners))


def configured(topology: Topology, partitions: dict[str, int]) -> Any:
    try:
        return told_configured(configure(topology, partitions))
    except KafkaError as error:
        return {"status": int(error.code)}


def differences(questions: list[Any], ours: list[Any]) -> list[str]:
    theirs = ask(questions)
    assert len(theirs) == len(questions)
    return [
        f"{question}\n  theirs {their}\n  ours {our}"
        for question, their, our in zip(questions, theirs, ours, strict=True)
        if their != our
    ][:3]


@pytest.mark.parametrize("seed", range(2))
def test_targets_are_the_same(seed: int) -> None:
    rng = Random(f"streams assign {seed}")
    questions = [question for _ in range(150) for question in group_life(rng)]
    questions += [any_group(rng) for _ in range(1500)]
    assert differences(questions, [assigned(question) for question in questions]) == [], f"seed {seed}"


def test_a_large_group_has_the_same_target() -> None:
    rng = Random("large")
    jobs = {str(at): Job(200, at % 2 == 0) for at in range(10)}
    processes = [random_id(rng) for _ in range(120)]
    members = {random_id(rng): AssignedMember(rng.choice(processes)) for _ in range(500)}
    questions = []
    for _ in range(3):
        questions.append(assign_question(rng, members, jobs, 1))
        target = assign_sticky(members, jobs, 1)
        members = {
            key: AssignedMember(member.process_id, target[key].active, target[key].standby)
            for key, member in members.items()
            if rng.random() < 0.9
        }
        members.update({random_id(rng): AssignedMember(rng.choice(processes)) for _ in range(40)})
    assert differences(questions, [assigned(question) for question in questions]) == []


@pytest.mark.parametrize("seed", range(2))
def test_steps_are_the_same(seed: int) -> None:
    rng = Random(f"streams step {seed}")
    questions = [any_step(rng) for _ in range(5000)]
    assert differences(questions, [stepped(question) for question in questions]) == [], f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_topologies_are_configured_the_same(seed: int) -> None:
    rng = Random(f"streams configure {seed}")
    questions: list[Any] = []
    ours: list[Any] = []
    while len(questions) < 5000:
        topology, partitions = random_topology(rng)
        if unrelated_counts_matter(topology):
            continue
        found = configured(topology, partitions)
        for _ in range(2):
            questions.append({"what": "configure", "topology": told_topology(topology), "partitions": partitions})
            ours.append(found)
            if "wanted" not in found or not found["wanted"]:
                break
            # The same once its topics have been made, mostly as wanted.
            made = {name: count for name, (count, _, _) in found["wanted"].items() if rng.random() < 0.9}
            if rng.random() < 0.2:
                made = dict.fromkeys(made, 9)
            partitions = {**partitions, **made}
            if made and rng.random() < 0.3:
                partitions[rng.choice(list(made))] += 1
            found = configured(topology, partitions)
    statuses = {found["status"] for found in ours}
    assert statuses == {-1, 1, 2, 3, 130}, statuses
    assert differences(questions, ours) == [], f"seed {seed}"
