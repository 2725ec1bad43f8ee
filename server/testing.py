"""A broker inside the test: started in the running trio loop, on a free port and a temporary directory, under a mock
clock if there is one.

    async with embedded_broker() as broker:            # ready in a few milliseconds
        async with connected(broker) as client:        # memory stream, no socket: works under a mock clock
            response = await client.ask(MetadataRequest(topics=None), 12)

`broker_thread()` is the same for synchronous tests with real clients: it runs trio in a thread and gives the
`host:port` to connect to.

    async with embedded_cluster(3) as cluster:         # three brokers on one tree in memory
        leader = await cluster.leader("topic", 0)
        await cluster.kill(leader)

The brokers of a cluster reach each other through memory streams too, unless `tcp` is asked for.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio
from trio.testing import MockClock, memory_stream_pair

from barnabas.kproto import ApiKey, decode, response_class
from barnabas.kproto.frame import FrameSplitter, parse_response_header, request_frame
from barnabas.logdir import Disk
from barnabas.replication import EmbeddedSession, EmbeddedStore, Endpoint, Image, PartitionImage, Store
from barnabas.server.broker.broker import Broker
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.peers import tcp_connect
from barnabas.server.runtime.offload import Offload, in_thread, inline
from barnabas.server.security.principals import Principal

TEST_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}

START_OF_VIRTUAL_TIME = 1_750_000_000.0
"""Wall clock, in seconds since the epoch, at the start of a mock clock."""


class Client:
    """Speaks requests over a stream, one at a time, for tests."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._splitter = FrameSplitter(1 << 30)
        self._frames: list[bytes] = []
        self._correlation_id = 0

    async def ask(self, request: Any, version: int, *, client_id: str | None = "test") -> Any:
        """Send `request` and return its response."""
        await self.send(request, version, client_id=client_id)
        return await self.receive(request, version)

    async def send(self, request: Any, version: int, *, client_id: str | None = "test") -> None:
        self._correlation_id += 1
        await self.stream.send_all(request_frame(version, self._correlation_id, client_id, request))

    async def receive(self, request: Any, version: int) -> Any:
        """The next response, read as an answer to `request`."""
        frame = await self.receive_frame()
        key = ApiKey(request.__description__.api_key)
        _, offset = parse_response_header(key, version, frame)
        return decode(response_class(key), version, frame, offset)

    async def receive_frame(self) -> bytes:
        """The next frame without its length. Raises EOFError when the broker closed."""
        while not self._frames:
            data = await self.stream.receive_some(1 << 16)
            if not data:
                raise EOFError("the broker closed the connection")
            self._frames += [bytes(frame) for frame in self._splitter.feed(data)]
        return self._frames.pop(0)


@asynccontextmanager
async def embedded_broker(
    directory: str | Path | None = None,
    offload: Offload = inline,
    seed: int = 0,
    *,
    disk: Disk | None = None,
    may_fail: bool = False,
    **settings: str,
) -> AsyncIterator[Broker]:
    """Start a broker in this loop and stop it at the end. Settings are Kafka's keys with `_` for `.`:
    `num_partitions="3"`. disk: instead of the operating system's files, for the logs. may_fail: it can have faults.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-") as temporary:
        broker = Broker(
            _config(directory or temporary, settings),
            offload=offload,
            wall_clock=_wall_clock(),
            rng=Random(seed),
            disk=disk,
            may_fail=may_fail,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            try:
                yield broker
            finally:
                await broker.stop()


def _config(directory: str | Path, settings: dict[str, str]) -> BrokerConfig:
    """TEST_SETTINGS under `settings`, whose keys are written with `_`."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.from_values({**TEST_SETTINGS, "log.dirs": str(directory), **given})


def _wall_clock() -> Callable[[], float]:
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock):
        return lambda: START_OF_VIRTUAL_TIME + clock.current_time()
    return time.time


class Member:
    """One broker of an `EmbeddedCluster` through its lives. `broker`: the present or last one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.is_running = False
        self.broker: Broker
        self.session: EmbeddedSession
        self.keep_session = False
        self._scope = trio.CancelScope()

    async def run(self, broker: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One life of the broker, until it stops or is killed."""
        self.broker = broker
        self.keep_session = False
        with trio.CancelScope() as self._scope:
            self.is_running = True
            try:
                await broker.run(task_status)
            finally:
                self.is_running = False

    def cancel(self) -> None:
        """End this life at once, without a word to anybody: the session is left to time out."""
        self.keep_session = True
        self._scope.cancel()


Sessions = Callable[[int], AbstractAsyncContextManager[Store]]


class EmbeddedCluster:
    """Brokers 1 to n in this loop, on one coordination tree in memory; made by `embedded_cluster`.

    A wait for something that never comes does not end: give tests time limits.
    """

    def __init__(
        self, nursery: trio.Nursery, directory: Path, offload: Offload, seed: int, tcp: bool, settings: dict[str, str]
    ) -> None:
        self.store = EmbeddedStore.open()
        self.sessions: Sessions | None = None
        self.members: dict[int, Member] = {}
        self._nursery = nursery
        self._directory = directory
        self._offload = offload
        self._seed = seed
        self._tcp = tcp
        self._settings = settings
        self._cut: set[frozenset[int]] = set()
        self._links: dict[frozenset[int], list[trio.abc.Stream]] = {}

    # -- lives -------------------------------------------------------------------------------------------------------

    def __getitem__(self, broker_id: int) -> Broker:
        return self.members[broker_id].broker

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return [broker_id for broker_id, member in self.members.items() if member.is_running]

    async def start(self, broker_id: int, /, *, disk: Disk | None = None, **settings: str) -> Broker:
        """Start a broker, with further settings; returns when it serves. With its old data if it ran before.

        disk: instead of the operating system's files, for the logs.
        """
        member = self.members.setdefault(broker_id, Member(self._directory / str(broker_id)))
        assert not member.is_running

        @asynccontextmanager
        async def session() -> AsyncIterator[EmbeddedSession]:
            member.session = self.store.connect()
            try:
                yield member.session
            finally:
                if not member.keep_session:
                    with trio.CancelScope(shield=True):
                        await member.session.aclose()

        broker = Broker(
            _config(member.directory, {"broker_id": str(broker_id), **self._settings, **settings}),
            disk=disk,
            offload=self._offload,
            wall_clock=_wall_clock(),
            rng=Random(self._seed * 1000 + broker_id),
            store=session if self.sessions is None else partial(self.sessions, broker_id),
            connect=tcp_connect if self._tcp else partial(self._open_link, broker_id),
        )
        await self._nursery.start(member.run, broker)
        return broker

    async def stop(self, broker_id: int) -> None:
        """A clean stop."""
        await self.members[broker_id].broker.stop()

    async def kill(self, broker_id: int, *, session_lasts_s: float = 0) -> None:
        """As by kill -9; its session ends `session_lasts_s` seconds later."""
        member = self.members[broker_id]
        member.cancel()
        await member.broker.stopped()
        if session_lasts_s:
            self._nursery.start_soon(_end_later, member.session, session_lasts_s)
        else:
            await member.session.aclose()

    async def expire(self, broker_id: int) -> None:
        """End the store session of a running broker; it gets a new one."""
        await self.members[broker_id].session.expire()

    # -- network -----------------------------------------------------------------------------------------------------

    async def _open_link(self, broker_id: int, endpoint: Endpoint) -> trio.abc.Stream:
        """The `Connect` of a broker: a memory stream to the one that has `endpoint`. Raises OSError."""
        await trio.lowlevel.checkpoint()
        for other_id, member in self.members.items():
            if member.is_running and member.broker.is_open and endpoint in member.broker.endpoints:
                link = frozenset((broker_id, other_id))
                if link in self._cut:
                    break
                ours, theirs = memory_stream_pair()
                member.broker.serve_stream(theirs, listener=endpoint.listener)
                self._links.setdefault(link, []).append(ours)
                return ours
        raise ConnectionRefusedError(f"no broker listens at {endpoint.host}:{endpoint.port}")

    async def cut(self, one: int, other: int) -> None:
        """Break what is open between two brokers and let them open nothing new."""
        link = frozenset((one, other))
        self._cut.add(link)
        for stream in self._links.pop(link, ()):
            await trio.aclose_forcefully(stream)

    def heal(self, one: int, other: int) -> None:
        self._cut.discard(frozenset((one, other)))

    # -- what is the case --------------------------------------------------------------------------------------------

    async def image_until(self, ready: Callable[[Image], bool], *broker_ids: int) -> None:
        """Wait until the images of these brokers (none: of all that run) are as wanted."""
        for broker_id in broker_ids or self.running:
            await self[broker_id].services.cluster.image_until(ready)

    async def all_alive(self) -> None:
        """Wait until all that run know of each other and of a controller among them."""
        running = sorted(self.running)
        await self.image_until(lambda image: sorted(image.brokers) == running and image.controller_id in running)

    async def leader(self, topic: str, index: int = 0, *, but: int | None = None) -> int:
        """The leader that all running brokers see (and that is not `but`)."""
        found = -1

        def is_led(image: Image) -> bool:
            nonlocal found
            partition = image.partition(topic, index)
            leads = partition is not None and partition.leader in self.running and partition.leader != but
            if leads and partition is not None:
                found = partition.leader
            return leads

        await self.image_until(is_led)
        return found

    async def partition_until(self, topic: str, index: int, ready: Callable[[PartitionImage], bool]) -> None:
        """Wait until all running brokers see the partition as wanted."""

        def is_ready(image: Image) -> bool:
            partition = image.partition(topic, index)
            return partition is not None and ready(partition)

        await self.image_until(is_ready)

    def controller(self) -> int:
        """The running broker that is controller; -1 for none."""
        return next((i for i in self.running if self[i].services.cluster.is_active), -1)


async def _end_later(session: EmbeddedSession, seconds: float) -> None:
    await trio.sleep(seconds)
    await session.aclose()


@asynccontextmanager
async def embedded_cluster(
    n: int = 3,
    directory: str | Path | None = None,
    *,
    offload: Offload = inline,
    seed: int = 0,
    tcp: bool = False,
    sessions: Sessions | None = None,
    **settings: str,
) -> AsyncIterator[EmbeddedCluster]:
    """Start brokers 1 to n and stop them at the end; ready when all know of each other. Topics get n replicas, three at
    most, unless their creator or the settings say otherwise. sessions: opens the store for a broker, instead of that of
    the cluster, on which `kill` and `expire` rest.
    """
    replicas = str(max(1, min(n, 3)))
    values = {
        "zookeeper_connect": "in.memory:2181",
        "default_replication_factor": replicas,
        "offsets_topic_replication_factor": replicas,
        "transaction_state_log_replication_factor": replicas,
        "transaction_state_log_min_isr": str(min(int(replicas), 2)),
        **settings,
    }
    with tempfile.TemporaryDirectory(prefix="barnabas-") as temporary:
        async with trio.open_nursery() as nursery:
            cluster = EmbeddedCluster(nursery, Path(directory or temporary), offload, seed, tcp, values)
            cluster.sessions = sessions
            for broker_id in range(1, n + 1):
                await cluster.start(broker_id)
            await cluster.all_alive()
            try:
                yield cluster
            finally:
                for broker_id in cluster.running:
                    cluster.members[broker_id].cancel()
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(
    broker: Broker, listener: str | None = None, *, client_host: str = "127.0.0.1", principal: Principal | None = None
) -> AsyncIterator[Client]:
    """A client on a memory stream. listener: where it seems to come in; None: the first. client_host, principal: who
    it seems to be.
    """
    ours, theirs = memory_stream_pair()
    broker.serve_stream(theirs, client_host, listener, principal=principal)
    async with ours:
        yield Client(ours)


@contextmanager
def broker_thread(directory: str | Path | None = None, **settings: str) -> Iterator[str]:
    """Run a broker in a thread of its own; the value is its `host:port`."""

    @asynccontextmanager
    async def alone() -> AsyncIterator[Broker]:
        async with embedded_broker(directory, in_thread, 0, disk=None, may_fail=False, **settings) as broker:
            yield broker

    with _in_thread(alone) as bootstrap:
        yield bootstrap


@contextmanager
def cluster_thread(directory: str | Path | None = None, **settings: str) -> Iterator[str]:
    """The same with a cluster of one broker, which serves what brokers of a cluster ask."""

    @asynccontextmanager
    async def clustered() -> AsyncIterator[Broker]:
        async with embedded_cluster(
            1, directory, offload=in_thread, seed=0, tcp=True, sessions=None, **settings
        ) as cluster:
            yield cluster[1]

    with _in_thread(clustered) as bootstrap:
        yield bootstrap


@contextmanager
def _in_thread(run: Callable[[], AbstractAsyncContextManager[Broker]]) -> Iterator[str]:
    started = threading.Event()
    state: dict[str, Any] = {}

    async def main() -> None:
        async with run() as broker:
            state["bootstrap"] = broker.bootstrap
            state["token"] = trio.lowlevel.current_trio_token()
            state["stop"] = trio.Event()
            started.set()
            await state["stop"].wait()

    def target() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            state["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=target, name="barnabas", daemon=True)
    thread.start()
    started.wait()
    if "error" in state:
        raise state["error"]
    try:
        yield state["bootstrap"]
    finally:
        state["token"].run_sync_soon(state["stop"].set)
        thread.join()
        if "error" in state:
            raise state["error"]
