"""Random lives of groups: what must hold holds after every step, and a group that is left alone comes to rest."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.coordinator.tests.streams_plan.group_model import NOTHING, Group
from barnabas.coordinator.tests.streams_plan.randoms import Job, random_id, random_jobs

ROUNDS = 4
"""Of heartbeats, after which a group that nobody changes is stable."""


def live(seed: str, steps: int) -> None:
    rng = Random(seed)
    group = Group(rng, random_jobs(rng, rng.choice((2, 6, 12))), rng.choice((0, 1, 1, 2)))
    processes = [random_id(rng) for _ in range(rng.choice((1, 2, 3, 5)))]
    for _ in range(steps):
        act(group, rng, processes)
        group.check_owners()
        if rng.random() < 0.03:
            settle(group)
    settle(group)


def act(group: Group, rng: Random, processes: list[str]) -> None:
    """One thing that happens."""
    clients = group.clients
    action = rng.random()
    if not clients or (action < 0.08 and len(clients) < 12):
        group.join(random_id(rng), rng.choice(processes))
    elif action < 0.11:
        group.remove(rng.choice(list(clients)))
    elif action < 0.12:
        gone = rng.choice(processes)
        for member_id in [member_id for member_id, client in clients.items() if client.process_id == gone]:
            group.remove(member_id)
    elif action < 0.14:
        restarted = clients[rng.choice(list(clients))]
        restarted.epoch, restarted.runs, restarted.tells = 0, NOTHING, True
    elif action < 0.15:
        grown = rng.choice(list(group.jobs))
        group.jobs[grown] = Job(group.jobs[grown].tasks + 1, group.jobs[grown].is_stateful)
        group.epoch += 1
    elif action < 0.25:
        if group.target_epoch < group.epoch:
            group.assign()
    else:
        group.heartbeat(rng.choice(list(clients)), loses_answer=rng.random() < 0.05)


def settle(group: Group) -> None:
    """19: nobody changes anything, everybody is heard."""
    if group.target_epoch < group.epoch:
        group.assign()
    order = list(group.clients)
    rounds = 0
    while not group.is_stable:
        rounds += 1
        assert rounds <= ROUNDS, "the group does not come to rest"
        for member_id in order:
            group.heartbeat(member_id)
            group.check_owners()


@pytest.mark.parametrize("seed", range(6))
def test_a_group_keeps_what_it_promises(seed: int) -> None:
    live(f"streams group {seed}", 150)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_many_groups_keep_what_they_promise(seed: int) -> None:
    for number in range(60):
        name = f"streams groups {seed} {number}"
        try:
            live(name, 600)
        except AssertionError as error:
            error.add_note(f"seed {name!r}")
            raise
