"""A group made of the pure parts alone, and members that do what Kafka Streams does; checked after every step.

Members join, leave, and restart with nothing; processes die; answers are lost, so that a member sends the epoch before
and what it really has; the assignor runs late. Numbers in comments are those of the invariants in the design notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing, Target, reconcile
from barnabas.coordinator.group.streams.sticky import AssignedMember, assign_sticky
from barnabas.coordinator.group.streams.tasks import Task, Tasks, each_task
from barnabas.coordinator.tests.streams_plan.randoms import Job

NOTHING = Tasks()


class Client:
    """A member as it sees itself. runs: what it has open, as it says if `tells`."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.epoch = 0
        self.runs = NOTHING
        self.tells = True


class Group:
    """What a coordinator keeps of a group."""

    def __init__(self, rng: Random, jobs: Mapping[str, Job], replicas: int) -> None:
        self.rng = rng
        self.jobs = dict(jobs)
        self.replicas = replicas
        self.epoch = self.target_epoch = 1
        self.targets: dict[str, Tasks] = {}
        self.standings: dict[str, Standing] = {}
        self.owners = TaskOwners()
        self.clients: dict[str, Client] = {}

    def join(self, member_id: str, process_id: str) -> None:
        self.clients[member_id] = Client(process_id)
        self.epoch += 1

    def remove(self, member_id: str) -> None:
        process_id = self.clients.pop(member_id).process_id
        standing = self.standings.pop(member_id, Standing())
        self.owners.remove(process_id, standing.assigned)
        self.owners.remove(process_id, standing.revoking)
        self.targets.pop(member_id, None)
        self.epoch += 1

    def assign(self) -> None:
        """Run the assignor."""
        members = {
            member_id: AssignedMember(client.process_id, before.active, before.standby)
            for member_id, client in self.clients.items()
            for before in [self.targets.get(member_id, NOTHING)]
        }
        self.targets = assign_sticky(members, self.jobs, self.replicas)
        self.target_epoch = self.epoch
        self.check_target()

    def heartbeat(self, member_id: str, loses_answer: bool = False) -> None:
        client = self.clients[member_id]
        standing = self.standings.get(member_id, Standing())
        joins = client.epoch == 0
        owned = client.runs if client.tells else None
        is_current = client.epoch == standing.epoch
        is_previous = client.epoch == standing.previous_epoch and owned is not None
        if not joins and not is_current and not (is_previous and client.runs.is_within(standing.assigned)):
            # Fenced: it closes all, and joins again.
            client.epoch, client.runs, client.tells = 0, NOTHING, True
            return
        target = Target(self.target_epoch, self.targets.get(member_id, NOTHING))
        after = reconcile(standing, target, client.process_id, owned, self.owners)
        assert after is not None
        self._replace(member_id, standing, after)
        if loses_answer:
            client.tells = True
            return
        client.epoch, client.tells = after.epoch, False
        # Without the last, a member that did not get the answer that asks it to revoke would never hear of it.
        if joins or after.assigned.tasks != standing.assigned.tasks or owned not in (None, after.assigned.tasks):
            client.tells = client.runs != after.assigned.tasks
            client.runs = after.assigned.tasks

    def _replace(self, member_id: str, before: Standing, after: Standing) -> None:
        process_id = self.clients[member_id].process_id
        if after == before and member_id in self.standings:
            return
        assert after.epoch >= before.epoch
        self.owners.remove(process_id, before.assigned)
        self.owners.remove(process_id, before.revoking)
        self.owners.add(process_id, after.assigned)
        self.owners.add(process_id, after.revoking)
        self.standings[member_id] = after
        self.check_standing(member_id, after)

    @property
    def is_stable(self) -> bool:
        """Everybody has, and runs, what it is to have."""
        return self.epoch == self.target_epoch and all(
            member_id in self.standings
            and self.standings[member_id].state is MemberState.STABLE
            and self.standings[member_id].epoch == self.target_epoch
            and client.runs == self.targets[member_id]
            for member_id, client in self.clients.items()
        )

    def check_target(self) -> None:
        """16."""
        if not self.clients:
            return
        active: Counter[Task] = Counter()
        standby: Counter[Task] = Counter()
        at_process: Counter[tuple[str, Task]] = Counter()
        most = -(-sum(job.tasks for job in self.jobs.values()) // len(self.clients))
        for member_id, client in self.clients.items():
            tasks = self.targets[member_id]
            active.update(each_task(tasks.active))
            standby.update(each_task(tasks.standby))
            at_process.update((client.process_id, task) for task in each_task(tasks.active))
            at_process.update((client.process_id, task) for task in each_task(tasks.standby))
            assert sum(map(len, tasks.active.values())) <= most
            assert not tasks.warmup
        processes = len({client.process_id for client in self.clients.values()})
        for subtopology, job in self.jobs.items():
            for partition in range(job.tasks):
                assert active.pop((subtopology, partition)) == 1
                wanted = min(self.replicas, processes - 1) if job.is_stateful else 0
                assert standby.pop((subtopology, partition), 0) == wanted
        assert not active
        assert not standby
        assert max(at_process.values(), default=0) <= 1

    def check_standing(self, member_id: str, standing: Standing) -> None:
        """18, 21."""
        assert standing.epoch <= self.target_epoch <= self.epoch
        assert (standing.state is MemberState.UNREVOKED) == (not standing.revoking.is_empty)
        assert not standing.assigned.tasks.has_any(standing.revoking)
        if standing.state is MemberState.STABLE and standing.epoch == self.target_epoch:
            assert standing.assigned.tasks == self.targets.get(member_id, NOTHING)
        for held in (standing.assigned, standing.revoking):
            for subtopology, epochs in held.active.items():
                for partition, epoch in epochs.items():
                    assert 0 < epoch <= standing.epoch
                    assert standing.assignment_epoch(subtopology, partition) == epoch

    def check_owners(self) -> None:
        """17, as the coordinator has it, and as the members really run."""
        self._check_apart(
            (self.clients[member_id].process_id, tasks)
            for member_id, standing in self.standings.items()
            for tasks in (standing.assigned.tasks, standing.revoking.tasks)
        )
        self._check_apart((client.process_id, client.runs) for client in self.clients.values())

    def _check_apart(self, held: Iterator[tuple[str, Tasks]]) -> None:
        active: set[Task] = set()
        at_process: set[tuple[str, Task]] = set()
        for process_id, tasks in held:
            for role in tasks:
                for task in each_task(role):
                    assert (process_id, task) not in at_process
                    at_process.add((process_id, task))
            for task in each_task(tasks.active):
                assert task not in active
                active.add(task)
