"""What goes wrong, and when: a schedule drawn from the seed.

Each fault is an async function that begins, lasts, and puts things right again. They overlap, with one exception, for
which Apache Kafka loses data too: a machine loses power only while all else is well, and nothing else begins until
it is in sync again. What was acknowledged is in the memories of the in-sync replicas, not on their
disks. (With `flush.messages=1` it is on the disks; such a run lets power go at any time.)
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from math import inf

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from barnabas.server.sim.client import Client, Gone
from barnabas.server.sim.cluster import Cluster, Machine
from barnabas.server.sim.network import Burden
from barnabas.server.sim.world import World

DISK_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""Those that end a log directory; `barnabas.server.sim.disk_faults` has the others."""

Fault = Callable[[], Awaitable[None]]


class Faults:
    """See the module. `run` for some seconds; when it returns everything is well again, or about to be.

    topics: those with load. power_any_time: flushed records make a loss of power harmless.
    """

    def __init__(self, world: World, cluster: Cluster, client: Client, topics: dict[str, int], *, power_any_time: bool):
        self._world = world
        self._cluster = cluster
        self._client = client
        self._topics = topics
        self._power_any_time = power_any_time
        self._rng = world.rng("faults")
        self._under_way = 0
        self._alone = False
        self._serial = 0
        self.count = 0

    async def run(self, seconds: float) -> None:
        rng, end = self._rng, self._world.now + seconds
        kinds: list[tuple[int, Fault]] = [
            (4, self.kill),
            (3, self.freeze),
            (2, self.restart),
            (3, self.cut_from_store),
            (2, self.slow),
            (2, self.reset),
            (2, self.expire),
            (1, self.create_and_delete),
            (2, self.fail_disk),
        ]
        if self._power_any_time or len(self._cluster.machines) > 1:
            kinds.append((2, self.lose_power))
        if len(self._cluster.machines) > 1:
            kinds += [
                (3, self.cut_leader_from_followers),
                (2, self.cut_controller),
                (2, self.cut_one_way),
                (2, self.isolate),
                (2, self.elect),
                (2, self.reassign),
                (1, self.roll),
                (1, self.kill_all),
                (1, self.cut_all_from_store),
            ]
        # Each run favours some kinds: rare combinations come up that way.
        favourites = rng.sample(range(len(kinds)), rng.randint(3, len(kinds)))
        chosen = [kinds[number] for number in favourites]
        weights = [weight for weight, _ in chosen]
        pause_s = rng.choice((0.7, 1.5, 3.0))
        async with trio.open_nursery() as nursery:
            while self._world.now < end:
                await trio.sleep(rng.expovariate(1 / pause_s))
                if not self._alone and self._under_way < 3:
                    fault = rng.choices(chosen, weights)[0][1]
                    self.count += 1
                    nursery.start_soon(self._perform, fault)
        for machine in self._cluster.machines.values():
            machine.start()

    async def _perform(self, fault: Fault) -> None:
        self._under_way += 1
        try:
            await fault()
        finally:
            self._under_way -= 1

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _any(self) -> Machine:
        return self._rng.choice(list(self._cluster.machines.values()))

    def _leader(self) -> Machine:
        """The leader of some partition with load, or any broker."""
        name = self._rng.choice(list(self._topics))
        leader = self._cluster.leader(name, self._rng.randrange(self._topics[name]))
        return self._cluster.machines[leader] if leader > 0 else self._any()

    def _controller(self) -> Machine:
        return self._cluster.machines.get(self._cluster.controller()) or self._any()

    def _someone(self) -> Machine:
        return self._rng.choice((self._any, self._leader, self._controller))()

    def _others(self, machine: Machine) -> list[str]:
        return [other.host for other in self._cluster.machines.values() if other is not machine]

    def _duration(self) -> float:
        """Most are short; some outlast the session and the lag limit."""
        return self._rng.choice((0.3, 1.0, 2.5, 5.0, 9.0)) * self._rng.uniform(0.5, 1.5)

    def _note(self, what: str, machine: Machine) -> None:
        self._world.note(f"fault: {what} {machine.host}")

    # -- processes ---------------------------------------------------------------------------------------------------

    async def kill(self) -> None:
        """kill -9, and a new start later."""
        machine = self._someone()
        machine.kill()
        await trio.sleep(self._duration())
        machine.start()

    async def kill_all(self) -> None:
        """Every process at once; each comes back when it likes."""
        self._world.note("fault: all are killed")
        machines = list(self._cluster.machines.values())
        for machine in machines:
            machine.kill()
        self._rng.shuffle(machines)
        pause_s = self._rng.choice((0.0, 1.0, 4.0))
        for machine in machines:
            await trio.sleep(pause_s * self._rng.random())
            machine.start()

    async def fail_disk(self) -> None:
        """One of the next calls of a disk fails; the broker ends with its only log directory, and is started again."""
        machine = self._someone()
        if not machine.serves:
            return
        disk, number, code = machine.disk, self._rng.randint(1, 80), self._rng.choice(DISK_ERRORS)
        self._note(f"call {number} of the disk fails with {errno.errorcode[code]} on", machine)
        disk.fail(number, code)
        await trio.sleep(self._duration())
        disk.rest()

    async def freeze(self) -> None:
        machine = self._someone()
        self._note("freeze", machine)
        with machine.frozen():
            await trio.sleep(self._duration())

    async def restart(self) -> None:
        """A clean stop, and a new start."""
        machine = self._someone()
        if machine.process is not None and machine.process.is_frozen:
            return
        self._note("restart", machine)
        await machine.stop()
        await trio.sleep(self._rng.uniform(0, 3))
        machine.start()

    async def roll(self) -> None:
        """A rolling restart: one after the other, when all are back."""
        for machine in self._cluster.machines.values():
            self._note("roll", machine)
            await machine.stop()
            machine.start()
            with trio.move_on_after(30):
                while not machine.serves:
                    await trio.sleep(0.2)

    async def lose_power(self) -> None:
        if self._power_any_time:
            machine = self._someone()
            machine.kill(power=True)
            await trio.sleep(self._duration())
            machine.start()
            return
        if self._under_way > 1 or self._alone:
            return
        self._alone = True
        try:
            with trio.move_on_after(20):
                await self._until(self._all_in_sync)
                machine = self._someone()
                machine.kill(power=True)
                await trio.sleep(self._duration())  # perhaps too short for anybody to notice
                machine.start()
                await self._until(self._all_in_sync)
        finally:
            self._alone = False

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            await trio.sleep(0.1)

    def _all_in_sync(self) -> bool:
        image = self._cluster.image()
        return (
            image is not None
            and len(self._cluster.serving) == len(self._cluster.machines)
            and all(
                len(partition.isr) == len(partition.replicas)
                for topic in image.topics.values()
                for partition in topic.partitions
            )
        )

    # -- the network -------------------------------------------------------------------------------------------------

    async def _cut(self, pairs: list[tuple[str, str]], machine: Machine | None = None) -> None:
        with self._cluster.cut(pairs):
            if machine is None:
                await trio.sleep(self._duration())
            else:
                with machine.troubled():
                    await trio.sleep(self._duration())
        if self._rng.random() < 0.5:
            for one, other in pairs:
                self._cluster.network.reset(one, other)

    async def cut_leader_from_followers(self) -> None:
        machine = self._leader()
        self._note("cut from the other brokers", machine)
        await self._cut([pair for other in self._others(machine) for pair in _both(machine.host, other)])

    async def cut_controller(self) -> None:
        """The controller reaches no other broker, perhaps not the store either."""
        machine = self._controller()
        self._note("cut controller", machine)
        pairs = [pair for other in self._others(machine) for pair in _both(machine.host, other)]
        if self._rng.random() < 0.5:
            with machine.cut_from_store():
                await self._cut(pairs)
        else:
            await self._cut(pairs)

    async def cut_one_way(self) -> None:
        """Bytes arrive in one direction only."""
        one, other = self._rng.sample([machine.host for machine in self._cluster.machines.values()], 2)
        self._world.note(f"fault: nothing arrives from {one} at {other}")
        await self._cut([(one, other)])

    async def cut_from_store(self) -> None:
        machine = self._someone()
        self._note("cut from the store", machine)
        with machine.cut_from_store():
            await trio.sleep(self._duration())

    async def cut_all_from_store(self) -> None:
        """The store is unreachable for all brokers; perhaps until all sessions have expired."""
        self._world.note("fault: nobody reaches the store")
        with ExitStack() as stack:
            for machine in self._cluster.machines.values():
                stack.enter_context(machine.cut_from_store())
            await trio.sleep(self._duration())

    async def isolate(self) -> None:
        """From brokers and store, not from clients: they may go on asking it."""
        machine = self._someone()
        self._note("isolate", machine)
        pairs = [pair for other in self._others(machine) for pair in _both(machine.host, other)]
        clients_too = self._rng.random() < 0.3
        if clients_too:
            pairs += _both(machine.host, "client")
        with machine.cut_from_store():
            await self._cut(pairs, machine if clients_too else None)

    async def slow(self) -> None:
        """Slow links around one broker."""
        machine = self._someone()
        self._note("slow links of", machine)
        delay_s = self._rng.choice((0.02, 0.1, 0.4))
        burden = Burden((delay_s / 2, delay_s * 1.5), self._rng.choice((inf, 2_000, 20_000)))
        links = [pair for other in [*self._others(machine), "client"] for pair in _both(machine.host, other)]
        network = self._cluster.network
        for source, target in links:
            network.burden(source, target, burden)
        with machine.troubled():
            await trio.sleep(self._duration())
        for source, target in links:
            network.relieve(source, target, burden)

    async def reset(self) -> None:
        """Connections break."""
        one, other = self._rng.sample(["client", *(each.host for each in self._cluster.machines.values())], 2)
        self._world.note(f"fault: connections between {one} and {other} are reset")
        self._cluster.network.reset(one, other)

    async def expire(self) -> None:
        """The store ends a session."""
        machine = self._someone()
        process = machine.process
        if process is not None and process.session is not None and process.is_alive:
            self._note("expire the session of", machine)
            process.session.expire()

    # -- what administrators do --------------------------------------------------------------------------------------

    async def _ask(self, request: object, version: int) -> None:
        """Of the controller, once; what comes of it does not matter here."""
        with trio.move_on_after(15):
            try:
                controller = self._cluster.controller()
                await self._client.ask_broker(controller if controller > 0 else 1, request, version)
            except Gone:
                pass

    async def elect(self) -> None:
        self._world.note("fault: preferred leaders are elected")
        await self._ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000), 2)

    async def reassign(self) -> None:
        """Another order of replicas, or one replica less and back again."""
        name = self._rng.choice(list(self._topics))
        index = self._rng.randrange(self._topics[name])
        replicas = list(self._cluster.machines)
        self._rng.shuffle(replicas)
        steps = [replicas] if self._rng.random() < 0.5 else [replicas[:2], self._rng.sample(replicas, len(replicas))]
        for step in steps:
            self._world.note(f"fault: {name}-{index} is reassigned to {step}")
            await self._ask(_reassignment({(name, index): step}), 0)
            await trio.sleep(self._rng.uniform(0.1, 4))

    async def create_and_delete(self) -> None:
        self._serial += 1
        name = f"passing-{self._serial}"
        self._world.note(f"fault: {name} is created and deleted")
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=-1)
        await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        await trio.sleep(self._rng.uniform(0, 3))
        await self._ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 4)


async def restore_replicas(client: Client, topics: dict[str, int], brokers: list[int]) -> None:
    """Every partition gets all brokers as replicas again, whatever reassignments have left."""
    wanted = {
        (name, index): [*brokers[index % len(brokers) :], *brokers[: index % len(brokers)]]
        for name, count in topics.items()
        for index in range(count)
    }
    request = _reassignment(wanted)

    def refused(response: AlterPartitionReassignmentsRequest) -> bool:
        codes = [response.error_code] + [  # type: ignore[attr-defined]
            partition.error_code
            for topic in response.responses  # type: ignore[attr-defined]
            for partition in topic.partitions
        ]
        return any(code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) for code in codes)

    await client.ask_controller(request, 0, refused)


def _reassignment(wanted: dict[tuple[str, int], list[int]]) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=5000,
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=name,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
                ],
            )
            for (name, index), replicas in wanted.items()
        ],
    )


def _both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]
