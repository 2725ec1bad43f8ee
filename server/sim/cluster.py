"""Three brokers as processes of the simulation: started, stopped, killed, frozen, cut off, put together again.

A `Machine` is a host with a disk; its broker may be started many times. A broker that ends by itself is a violation,
and so is anything that it logs as an error. A machine whose broker could not start (its last registration is still
there, say) tries again after a while, as a service manager would.

The ways: `broker-N` to each other, `client` to brokers, and brokers to the store.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any, TypeVar

import trio

from barnabas.replication import BrokerIdTaken, Endpoint, Image, Store, StoreError
from barnabas.server.broker.broker import Broker
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.registry import Partitions
from barnabas.server.sim.disk import FAULT, GONE, SimDisk
from barnabas.server.sim.network import Network
from barnabas.server.sim.store import SimSession, SimStore
from barnabas.server.sim.world import DOMAIN, World

T = TypeVar("T")

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "/data",
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": "6000",
    "num.partitions": "1",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "leader.imbalance.check.interval.seconds": "20",
    "log.segment.bytes": "3000",
    "log.index.interval.bytes": "200",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

RESTART_S = 1.0
ROUND_S = 0.02

BELOW_WATERMARK = "below its high watermark"
"""What a broker says when it throws away records that count as committed."""


class SharedRounds:
    """What several clients ask within `ROUND_S` is one round, as it is for the reactor; over streams each client has
    rounds of its own.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._write_staged = partitions.write_staged
        self._is_due = trio.Event()
        partitions.write_staged = self._later  # type: ignore[method-assign]

    def _later(self) -> None:
        self._is_due.set()

    async def run(self) -> None:
        while True:
            await self._is_due.wait()
            await trio.sleep(ROUND_S)
            self._is_due = trio.Event()
            self._write_staged()


class Process:
    """One life of a broker."""

    def __init__(self, machine: Machine, life: int) -> None:
        self.machine = machine
        self.domain = f"{machine.host}/{life}"
        self.life = life
        self.broker: Broker
        self._nursery: trio.Nursery
        self.session: SimSession | None = None
        self.is_alive = True
        self.is_stopping = False
        self.serves = False
        self.is_frozen = False
        self.ended = trio.Event()
        self._round: SharedRounds | None = None
        self._cluster = machine.cluster
        self._world = machine.cluster.world
        self._rng = Random(machine.rng.getrandbits(64))
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Runs in its domain."""
        settings = {
            **SETTINGS,
            **self._cluster.settings,
            "broker.id": str(self.machine.id),
            "advertised.listeners": f"PLAINTEXT://{self.machine.host}:9092",
        }
        self.broker = Broker(
            BrokerConfig.from_values(settings),
            offload=self._offload,
            wall_clock=self._world.wall_clock,
            rng=self._rng,
            store=self._open_session,
            connect=self._connect,
            disk=self.machine.disk.disk,
        )
        why = "has ended"
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._listen)
                    await nursery.start(self.broker.run)
                    self.serves = True
                    self._world.note(f"{self.machine.host} serves")
                    self.machine.calm_again()
                    await self.broker.stopped()
                    nursery.cancel_scope.cancel()
        except* (StoreError, BrokerIdTaken) as errors:
            why = _text(errors)
        except* Exception as errors:
            why = _text(errors)
            if self.is_alive and not self.machine.disk.may_fail:
                self._world.violation(f"{self.machine.host} ends with {why}")
        finally:
            if self.is_alive and not self._world.is_over:
                if self.serves and not self.is_stopping and not self.machine.disk.may_fail:
                    self._world.violation(f"{self.machine.host} ends by itself: {why}")
                self._world.note(f"{self.machine.host}: its process ends: {why}")
                self._die(power=False)
            self.ended.set()

    async def _listen(self) -> None:
        """Take connections while the broker does."""
        network, host = self._cluster.network, self.machine.host
        while not self.broker.is_accepting:
            await trio.sleep(0.002)
        network.listen(host, self._welcome)
        while self.broker.is_accepting:
            await trio.sleep(0.1)
        network.unlisten(host)

    def _welcome(self, stream: trio.abc.Stream, peer: str) -> None:
        if self.broker.is_accepting:
            if self._cluster.shared_rounds and self._round is None:
                self._round = SharedRounds(self.broker.services.partitions)
                self._world.in_domain(self.domain, self._nursery.start_soon, self._round.run)
            self._world.in_domain(self.domain, self.broker.serve_stream, stream, peer)

    def stop(self) -> None:
        """Ask it for an orderly stop."""
        self.is_stopping = True
        if self.serves:
            self._world.in_domain(self.domain, self._world.nursery.start_soon, self.broker.stop)
        else:
            self.kill(power=False)

    def kill(self, *, power: bool) -> None:
        """It is gone, whatever it was doing.

        Its tasks stand still for good: not even a shielded one, or what a cancelled one does last, goes on. They end
        when the run does. What its callbacks started belongs to no domain and is cancelled.
        """
        if self.is_alive:
            self._die(power=power)
            self._world.freeze(self.domain)
            self._scope.cancel()
            self.ended.set()

    def _die(self, *, power: bool) -> None:
        self.is_alive = self.serves = False
        machine = self.machine
        if power:
            self._cluster.network.power_off(machine.host)
            machine.disk.lost_power(self._rng)
        else:
            self._cluster.network.kill(machine.host)
            machine.disk.killed()
        if self.session is not None:
            self.session.kill()
        self.is_frozen = False  # a killed one that stood still goes on doing so
        machine.calm_since = float("inf")

    def freeze(self) -> None:
        """As SIGSTOP."""
        if self.is_alive and not self.is_frozen:
            self.is_frozen = True
            self._world.freeze(self.domain)
            if self.session is not None:
                self.session.interrupt()

    def thaw(self) -> None:
        """As SIGCONT."""
        if self.is_frozen:
            self.is_frozen = False
            self._world.thaw(self.domain)
            if self.session is not None:
                self.session.resume()

    # -- what the broker stands on -----------------------------------------------------------------------------------

    async def _offload(self, fn: Callable[..., T], *args: Any) -> T:
        """A thread: takes a while, then has done it."""
        stalls = self._rng.random() < 0.05  # as disks do
        await trio.sleep(self._rng.uniform(0.1, 1.5) if stalls else self._rng.uniform(0.0002, 0.01))
        return fn(*args)

    @asynccontextmanager
    async def _open_session(self) -> AsyncIterator[Store]:
        self.session = session = self._cluster.store.connect(self.machine.host)
        for _ in range(self.machine.store_cuts):
            session.interrupt()
        try:
            yield session
        finally:
            if self.is_alive:
                with trio.CancelScope(shield=True):
                    await session.aclose()

    async def _connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        return await self._cluster.network.connect(self.machine.host, endpoint.host)


class Machine:
    """A host with a disk; `process` is what runs there, None if nothing does.

    calm_since: since when its broker serves and the way between it and the client is well; infinity while not.
    """

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.host = f"broker-{broker_id}"
        self.disk = SimDisk()
        self.rng = cluster.world.rng(self.host)
        self.process: Process | None = None
        self.store_cuts = 0
        self.calm_since = float("inf")
        self._troubles = 0
        self._lives = 0
        self._wanted = False
        self._wake = trio.Event()
        cluster.network.add(self.host)
        cluster.world.nursery.start_soon(self._supervise)

    async def _supervise(self) -> None:
        while True:
            while not self._wanted:
                self._wake = trio.Event()
                await self._wake.wait()
            world = self.cluster.world
            self._lives += 1
            self.process = Process(self, self._lives)
            self.cluster.network.power_on(self.host)
            world.note(f"{self.host} starts")
            world.in_domain(self.process.domain, world.nursery.start_soon, self.process.run)
            await self.process.ended.wait()
            self.process = None
            await trio.sleep(RESTART_S)

    @property
    def is_alive(self) -> bool:
        """A process is there; it may be starting, stopping or standing still."""
        return self.process is not None and self.process.is_alive

    @property
    def serves(self) -> bool:
        return self.process is not None and self.process.serves

    @property
    def is_wanted(self) -> bool:
        """It is to run, and is started again when it could not start."""
        return self._wanted

    def start(self) -> None:
        """Run from now on."""
        self._wanted = True
        self._wake.set()

    async def stop(self) -> None:
        """Stop in order; returns when the process has ended."""
        self._wanted = False
        if self.process is not None:
            self.cluster.world.note(f"{self.host} is told to stop")
            self.calm_since = float("inf")
            self.process.stop()
            await self.process.ended.wait()

    def kill(self, *, power: bool = False) -> None:
        """End the process. power: the machine loses power, and with it what was not synced."""
        self._wanted = False
        if self.process is not None and self.process.is_alive:
            self.cluster.world.note(f"{self.host} {'loses power' if power else 'is killed'}")
            self.process.kill(power=power)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The process stands still."""
        process = self.process
        if process is None or not process.is_alive:
            yield
            return
        process.freeze()
        try:
            with self.troubled():
                yield
        finally:
            process.thaw()

    @contextmanager
    def cut_from_store(self) -> Iterator[None]:
        """The way to the store is cut."""
        self.store_cuts += 1
        if self.process is not None and self.process.session is not None:
            self.process.session.interrupt()
        try:
            yield
        finally:
            self.store_cuts -= 1
            if self.process is not None and self.process.session is not None:
                self.process.session.resume()

    @contextmanager
    def troubled(self) -> Iterator[None]:
        """Clients may find that this broker does not answer."""
        self._troubles += 1
        self.calm_since = float("inf")
        try:
            yield
        finally:
            self._troubles -= 1
            self.calm_again()

    def calm_again(self) -> None:
        """Trouble is over, if it is."""
        if not self._troubles and self.serves:
            self.calm_since = self.cluster.world.now


class Cluster:
    """The machines 1 to n, the network and the store. settings: on top of SETTINGS. shared_rounds: whether there are
    `SharedRounds`.
    """

    def __init__(self, world: World, n: int, settings: Mapping[str, str]) -> None:
        self.world = world
        topics = ("default", "offsets.topic", "transaction.state.log")
        replicas = {f"{topic}.replication.factor": str(n) for topic in topics}
        in_sync = {key: str(min(n, 2)) for key in ("min.insync.replicas", "transaction.state.log.min.isr")}
        self.settings = {**replicas, **in_sync, **settings}
        self.shared_rounds = False
        self.network = Network(world, world.rng("network"))
        self.network.add("client")
        self.store = SimStore(world, world.rng("store"))
        self.machines = {broker_id: Machine(self, broker_id) for broker_id in range(1, n + 1)}

    def calm_since(self, broker_id: int) -> float:
        """See `Machine`."""
        return self.machines[broker_id].calm_since

    @property
    def serving(self) -> dict[int, Broker]:
        """The brokers that serve."""
        return {
            machine.id: machine.process.broker
            for machine in self.machines.values()
            if machine.process is not None and machine.process.serves
        }

    def processes(self) -> Iterable[tuple[int, int, Broker]]:
        """(broker id, life, broker) of all that serve."""
        for machine in self.machines.values():
            if machine.process is not None and machine.process.serves:
                yield machine.id, machine.process.life, machine.process.broker

    def controller(self) -> int:
        """The broker that is controller and knows it; -1 for none. Two may believe it for a while: the first."""
        for broker_id, broker in self.serving.items():
            if broker.services.cluster.is_active:
                return broker_id
        return -1

    def image(self) -> Image | None:
        """The cluster as the controller's broker sees it."""
        broker = self.serving.get(self.controller())
        return None if broker is None else broker.services.current_image()

    def leader(self, topic: str, index: int) -> int:
        """The partition's leader as the controller's broker sees it; -1 for none."""
        image = self.image()
        partition = image.partition(topic, index) if image is not None else None
        return -1 if partition is None else partition.leader

    @contextmanager
    def cut(self, pairs: Iterable[tuple[str, str]]) -> Iterator[None]:
        """Cut links, each in the direction of its pair of hosts."""
        cut = list(pairs)
        for source, target in cut:
            self.network.cut(source, target)
        try:
            yield
        finally:
            for source, target in cut:
                self.network.mend(source, target)

    @contextmanager
    def watching_logs(self, echo: bool = False) -> Iterator[None]:
        """What living brokers log as an error is a violation; the rest is shown if asked for."""
        handler = _Listener(self, echo)
        root = logging.getLogger()
        level, handlers = root.level, list(root.handlers)
        root.handlers = [handler]
        root.setLevel(logging.INFO if echo else logging.WARNING)
        try:
            yield
        finally:
            root.handlers = handlers
            root.setLevel(level)


class _Listener(logging.Handler):
    def __init__(self, cluster: Cluster, echo: bool) -> None:
        super().__init__()
        self._cluster = cluster
        self._echo = echo

    def emit(self, record: logging.LogRecord) -> None:
        domain = DOMAIN.get()
        machines = [
            machine
            for machine in self._cluster.machines.values()
            if machine.process is not None and machine.process.is_alive and domain in (machine.process.domain, "")
        ]
        if (domain and not machines) or GONE in record.getMessage():
            return
        text = f"{domain} {record.levelname}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        world = self._cluster.world
        # What a disk that fails is to be blamed for; never with a traceback. (From outside its tasks it has no domain.)
        is_disk = record.exc_info is None and (FAULT in text or any(machine.disk.may_fail for machine in machines))
        if (record.levelno >= logging.ERROR and not is_disk) or BELOW_WATERMARK in text:
            world.violation(text)
        else:
            world.say(f"{world.now:10.4f} {text}")


def _text(group: BaseExceptionGroup[BaseException]) -> str:
    leaves: list[str] = []
    for error in group.exceptions:
        leaves.append(_text(error) if isinstance(error, BaseExceptionGroup) else f"{type(error).__name__}: {error}")
    return "; ".join(leaves)
