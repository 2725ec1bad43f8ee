"""One run: a seed in, a verdict out.

    outcome = simulate(17, seconds=30)
    outcome.violations == []

`disk`: a call of a disk that fails, and nothing else goes wrong (`barnabas.server.sim.disk_faults` tries all of them).

Start three brokers, create topics, begin the load; inject faults for `seconds` of virtual time; heal them, and give the
cluster `CONVERGE_S` to acknowledge everything and to have all replicas in sync and identical. Then compare them with
the responses that clients got (`checks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from time import process_time
from typing import NamedTuple

import trio

from barnabas.server.sim import chores
from barnabas.server.sim.checks import Commit, History, TopicPartition, Watcher, check_logs, differences, log_bytes
from barnabas.server.sim.chores import Chores
from barnabas.server.sim.client import Client
from barnabas.server.sim.cluster import Cluster
from barnabas.server.sim.disk import SimDisk
from barnabas.server.sim.faults import Faults, restore_replicas
from barnabas.server.sim.ledger import Ledger
from barnabas.server.sim.load import Consumer, Lane, Member, committed_offset, create_topic, producer_id
from barnabas.server.sim.transactions import TIMEOUT_S, CommittedReader, Transactor, finalise
from barnabas.server.sim.world import World

TOPICS = {"t": 3, "u": 1}
"""With load that is not in transactions."""
TRANSACTIONS = {"x": 2}
"""With load that is."""
CONFIGS = {"u": {"message_timestamp_type": "LogAppendTime", "flush_messages": "3"}}
"""Of topics in runs whose disks fail."""
OFFSETS = "__consumer_offsets"
STATES = "__transaction_state"
START_S = 60.0
CONVERGE_S = 90.0
END_S = 10.0
"""How long the end of a transaction may take when its time is up and all is well."""
LOOK_S = 0.1
PROTOCOLS = ("3.4", "3.0", "2.8", "2.6", "2.4", "1.1", "1.0")
"""Versions between brokers, besides the newest: each has another way of doing something."""


class DiskFault(NamedTuple):
    """The call of a broker's disk with this number, counted from when all topics are there, fails with `code`; 0: none
    does, they are counted.
    """

    broker_id: int
    number: int
    code: int


@dataclass(slots=True)
class Outcome:
    """What came of a run. digest: hash of its trace; cpu_s: what it cost; virtual_s: how long it lasted inside; disks:
    by broker, what was seen of their calls, if a `DiskFault` was given.
    """

    seed: int
    violations: list[str]
    digest: str
    lines: list[str] = field(repr=False)
    acknowledged: int
    shown: int
    committed: int
    transactions: int
    faults: int
    virtual_s: float
    cpu_s: float
    disks: dict[int, SimDisk]

    def __str__(self) -> str:
        verdict = "ok" if not self.violations else "FAILED: " + self.violations[0]
        return (
            f"seed {self.seed}: {self.acknowledged} acknowledged, {self.shown} shown, {self.committed} commits, "
            f"{self.transactions} transactions, {self.faults} faults, "
            f"{self.virtual_s:.0f} s in {self.cpu_s:.2f} s: {verdict}"
        )


def simulate(
    seed: int,
    *,
    brokers: int = 3,
    seconds: float = 30.0,
    settings: Mapping[str, str] | None = None,
    disk: DiskFault | None = None,
    keep: bool = False,
    echo: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed. seconds: of virtual time, in which things go wrong; 0: nothing does, but `disk`. keep, echo: see
    `World`.

    settings: of the brokers, on top of `cluster.SETTINGS`.
    """
    begin = process_time()
    world = World(seed, keep=keep, echo=echo)
    run = _Run(world, brokers, seconds, settings or {}, disk, show_logs=echo is not None or keep)
    with run.logs:
        world.run(run.main)
    return Outcome(
        seed,
        world.violations,
        world.digest,
        world.lines,
        run.history.acknowledged_count,
        run.history.shown_count,
        sum(commit.confirmed + 1 for commit in run.history.commits.values()),
        run.ledger.confirmed_count,
        run.fault_count,
        world.now,
        process_time() - begin,
        run.disks,
    )


def _draw(rng: Random) -> dict[str, str]:
    """Settings that lead to other code: half of the runs have some."""
    drawn: dict[str, str] = {}
    if rng.random() < 0.25:
        drawn["log.flush.interval.messages"] = "1"
    if rng.random() < 0.3:
        drawn["inter.broker.protocol.version"] = rng.choice(PROTOCOLS)
    if rng.random() < 0.2:
        drawn["num.replica.fetchers"] = "2"
    if rng.random() < 0.2:
        drawn["replica.fetch.max.bytes"] = "300"  # a batch or two at a time
    if rng.random() < 0.1:
        drawn["replica.lag.time.max.ms"] = "800"
    return drawn


class _Run:
    def __init__(
        self,
        world: World,
        brokers: int,
        seconds: float,
        settings: Mapping[str, str],
        disk: DiskFault | None,
        *,
        show_logs: bool,
    ) -> None:
        self.world = world
        self.history = History(world)
        self.ledger = Ledger(world)
        self.fault_count = 0
        self.logs = ExitStack()  # watched until the last task has ended
        self._brokers = brokers
        self._settings = settings
        self._seconds = seconds
        self._disk_fault = disk
        self.disks: dict[int, SimDisk] = {}
        self._show_logs = show_logs
        self._rng = world.rng("run")
        self._load_is_over = False
        self._lanes: list[Lane] = []
        self._transactors: list[Transactor] = []
        self._consumers: dict[TopicPartition, Consumer | CommittedReader] = {}
        self._chores: Chores | None = None
        self._watcher = Watcher(world)

    async def main(self) -> None:
        settings = {**_draw(self._rng), **self._settings}
        if self._disk_fault is not None:
            settings = {**chores.SETTINGS, **settings}
        # What is acknowledged is on the disks then.
        flushed = settings.get("log.flush.interval.messages") == "1"
        self.world.note(f"settings: {settings}")
        self._cluster = cluster = Cluster(self.world, self._brokers, settings)
        self._client = client = self._new_client("control")
        cluster.shared_rounds = self._disk_fault is not None
        self.logs.enter_context(cluster.watching_logs(self._show_logs))
        for machine in cluster.machines.values():
            machine.start()
        self.world.nursery.start_soon(self._watch)
        await self._within(START_S, self._prepare, "the start")
        for member in self._load():
            self.world.nursery.start_soon(member.run, self._is_over)
        if self._disk_fault is not None:
            await self._within(START_S, self._coordinators, "making the coordinators' topics")
            self._watch_disks(self._disk_fault)
            self._chores = Chores(self._new_client("administrator"), list(cluster.machines))
            self.world.nursery.start_soon(self._chores.run, self._is_over)
        if self._seconds:
            faults = Faults(self.world, cluster, client, {**TOPICS, **TRANSACTIONS}, power_any_time=flushed)
            await faults.run(self._seconds)
            self.fault_count = faults.count
        else:
            await trio.sleep(10)
        self.world.note("everything is well again")
        await self._within(CONVERGE_S, self._converge, "becoming whole")
        await self._verify()
        self.world.note("the end")

    def _new_client(self, name: str) -> Client:
        brokers = list(self._cluster.machines)
        return Client(self.world, self._cluster.network, self._cluster, name, brokers, self.world.rng(name))

    async def _coordinators(self) -> None:
        for name in (OFFSETS, STATES):
            await self._client.leader(name, 0)

    def _watch_disks(self, fault: DiskFault) -> None:
        self.disks = {machine.id: machine.disk for machine in self._cluster.machines.values()}
        for disk in self.disks.values():
            disk.watch()
        if fault.number:
            self.disks[fault.broker_id].fail(fault.number, fault.code)

    async def _within(self, seconds: float, work: Callable[[], object], what: str) -> None:
        with trio.move_on_after(seconds) as scope:
            await work()  # type: ignore[misc]
        if scope.cancelled_caught:
            self.world.violation(f"{what} takes more than {seconds:g} s: {self._state()}")
            await trio.lowlevel.checkpoint()

    async def _watch(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            self._watcher.look(self._cluster.processes())

    # -- load --------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        client = self._client
        while len(self._cluster.serving) < len(self._cluster.machines) or self._cluster.controller() < 0:
            await trio.sleep(0.1)
        brokers = list(self._cluster.machines)
        everywhere = {**TOPICS, **TRANSACTIONS}
        for name, count in everywhere.items():
            configs = CONFIGS.get(name, {}) if self._disk_fault is not None else {}
            await create_topic(client, name, [brokers[i:] + brokers[:i] for i in range(count)], **configs)
        for topic, count in everywhere.items():
            for index in range(count):
                await client.leader(topic, index)
        rng = self._rng
        for producer in range(2):
            own = self._new_client(f"producer-{producer}")
            number = await producer_id(own)
            for topic, count in TOPICS.items():
                for index in range(count):
                    lane = Lane(
                        own,
                        self.history,
                        (topic, index),
                        f"{producer}.{topic}.{index}",
                        window=rng.randint(1, 5),
                        pause_s=rng.choice((0.4, 1.0, 2.5)),
                        acks=1 if self._brokers == 1 and producer else -1,
                    )
                    lane.producer_id = number
                    self._lanes.append(lane)
        version = 2 if rng.random() < 0.5 and await finalise(client, "transaction.version", 2) else 0
        self.world.note(f"transaction.version is {version}")
        for number in range(2):
            name = f"transactor-{number}"
            pause_s = rng.choice((0.1, 0.4, 1.5))
            keys = [(topic, index) for topic, count in TRANSACTIONS.items() for index in range(count)]
            self._transactors.append(
                Transactor(self._new_client(name), self.ledger, name, keys, version=version, pause_s=pause_s)
            )

    def _load(self) -> list[Lane | Member | Transactor]:
        consumer = self._new_client("consumer")
        for topic, count in TOPICS.items():
            for index in range(count):
                self._consumers[topic, index] = Consumer(consumer, self.history, (topic, index))
        for topic, count in TRANSACTIONS.items():
            for index in range(count):
                self._consumers[topic, index] = CommittedReader(consumer, self.ledger, (topic, index))
        for reader in self._consumers.values():
            self.world.nursery.start_soon(reader.run)
        groups = [("g", ("t", 0)), ("g", ("t", 1)), ("h", ("t", 0))]
        members = [
            Member(self._new_client(f"member-{number}"), self.history, group, key, pause_s=0.7)
            for number, (group, key) in enumerate(groups)
        ]
        return [*self._lanes, *members, *self._transactors]

    def _is_over(self) -> bool:
        return self._load_is_over

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _converge(self) -> None:
        """Wait until all brokers serve, everything is acknowledged, and every replica is in sync and complete."""
        cluster = self._cluster
        while len(cluster.serving) < len(cluster.machines):
            await trio.sleep(0.2)
        if self._seconds:
            await restore_replicas(self._client, {**TOPICS, **TRANSACTIONS}, list(cluster.machines))
        self._load_is_over = True
        while self._chores is not None and not self._chores.done:
            await trio.sleep(0.2)
        while any(not each.done or each.has_zombies for each in self._transactors):
            await trio.sleep(0.2)
        with trio.move_on_after(TIMEOUT_S + END_S) as scope:
            while (hanging := self._hanging()) is not None:
                await trio.sleep(0.2)
        if scope.cancelled_caught:
            self.world.violation(f"a transaction hangs: {hanging}")
        while any(not lane.done for lane in self._lanes) or self._unfinished() is not None:
            await trio.sleep(0.2)

    def _hanging(self) -> str | None:
        """A partition with a transaction that is open, or None."""
        for broker_id, broker in self._cluster.serving.items():
            for partition in broker.services.partitions:
                if partition.is_leader and partition.last_stable_offset < partition.high_watermark:
                    return (
                        f"{partition.topic}-{partition.index} on broker {broker_id}: last stable offset "
                        f"{partition.last_stable_offset}, high watermark {partition.high_watermark}"
                    )
        return None

    def _unfinished(self) -> str | None:
        cluster = self._cluster
        image = cluster.image()
        if image is None:
            return "no controller"
        for broker_id, broker in cluster.serving.items():
            seen = broker.services.current_image()
            if seen.controller_id != image.controller_id or sorted(seen.brokers) != sorted(image.brokers):
                return f"broker {broker_id} sees controller {seen.controller_id} and brokers {sorted(seen.brokers)}"
            for name in self._names():
                one, other = seen.topics.get(name), image.topics.get(name)
                # Old protocols do not send topic ids.
                if (one and one.partitions) != (other and other.partitions):
                    return f"broker {broker_id} sees {name} otherwise: {one and one.partitions}"
        for name in self._names():
            topic = image.topics.get(name)
            for partition in topic.partitions if topic is not None else ():
                if len(partition.isr) < self._brokers or partition.adding_replicas or partition.removing_replicas:
                    return f"{name}: {partition}"
        why = differences(cluster.serving, self._keys())
        if why is None:
            for key, consumer in self._consumers.items():
                end = next(iter(cluster.serving.values())).services.partitions.get(*key).log_end_offset
                if consumer.position != end:
                    return f"{key}: the consumer is at {consumer.position} of {end}"
        return why

    def _names(self) -> list[str]:
        return [*TOPICS, *TRANSACTIONS, OFFSETS, STATES, *([chores.TOPIC] if self._chores is not None else ())]

    def _keys(self) -> list[TopicPartition]:
        image = self._cluster.image()
        assert image is not None
        return [
            (name, partition.index)
            for name in self._names()
            if name in image.topics
            for partition in image.topics[name].partitions
        ]

    def _state(self) -> str:
        alive = [machine.host for machine in self._cluster.machines.values() if machine.serves]
        lanes = [lane for lane in self._lanes if not lane.done]
        transactors = [each for each in self._transactors if not each.done]
        return f"{alive} serve; not done: {lanes} {transactors} {self._chores}; {self._unfinished()}"

    async def _verify(self) -> None:
        brokers = self._cluster.serving
        for disk in self.disks.values():
            disk.rest()
        check_logs(self.world, self.history, brokers, [key for key in self._keys() if key[0] in TOPICS])
        if self._chores is not None:
            self._chores.check(brokers)
        await self._verify_transactions()
        for (group, topic, index), commit in self.history.commits.items():
            await self._verify_commit(group, (topic, index), commit)

    async def _verify_transactions(self) -> None:
        logs: dict[TopicPartition, bytes] = {}
        for key in [key for key in self._keys() if key[0] in TRANSACTIONS]:
            contents = [log_bytes(broker, key) for broker in self._cluster.serving.values()]
            if any(content != contents[0] for content in contents):
                self.world.violation(f"{key}: the replicas differ")
            logs[key] = contents[0]
        offsets: dict[str, int] = {}
        for transactor in self._transactors:
            with trio.move_on_after(30) as scope:
                offsets[transactor.name] = await transactor.group_offset()
            if scope.cancelled_caught:
                self.world.violation(f"the offset of {transactor.group} stays unstable")
        self.ledger.check(logs, offsets)

    async def _verify_commit(self, group: str, key: TopicPartition, commit: Commit) -> None:
        found = -2
        with trio.move_on_after(30):
            found = await committed_offset(self._client, group, key)
        if not commit.confirmed <= found <= commit.asked:
            self.world.violation(
                f"group {group} committed {commit.confirmed} of {key} (asked for {commit.asked}), and has {found}"
            )
