"""A cluster as child processes, for the test suites of other programs: `barnabas.Cluster`.

Several brokers and the store of their metadata, a process each, without ZooKeeper: what `barnabas cluster` runs, but
whoever tests decides what is killed and what comes back. What runs in the caller's process is this file and
`child.py`; what administers topics loads a small client when it is used.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.child import KIT_CLIENT_ID, BrokerError, Child, Home, close_after, reserve, text_of, topic_texts
from barnabas.clock import Snapshot
from barnabas.cluster_clock import ClusterClock
from barnabas.cluster_snapshots import ClusterSnapshot, check, forget, put_back, remove_all_of, take
from barnabas.security import ADMINISTRATOR, Security

if TYPE_CHECKING:
    from barnabas.faults import Faults
    from barnabas.server.network.blocking_cluster import BlockingCluster
    from barnabas.server.security.client_access import ClientAccess
    from barnabas.topics import Topics

__all__ = ["Cluster", "ClusterBroker", "ClusterStore"]

SESSION_MS = 6000
CONNECTION_MS = 18_000
STOP_S = 30.0
AGAIN_S = 0.1
OWN = ("broker.id", "node.id", "listeners", "advertised.listeners", "zookeeper.connect", "metadata.store.socket")


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the cluster, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class ClusterStore:
    """The process that keeps the metadata. While it is away brokers serve, but nothing changes: no elections, no
    topics.
    """

    def __init__(self, child: Child, directory: Path, log_level: str, timeout_s: float) -> None:
        self._child = child
        self._directory = directory
        self._log_level = log_level
        self._timeout_s = timeout_s

    @property
    def directory(self) -> Path:
        """Where it keeps the metadata."""
        return self._directory

    @property
    def socket(self) -> Path:
        """What brokers are given as `metadata.store.socket`."""
        return self._directory / "socket"

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._child.running

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if it is not running."""
        return self._child.pid

    def start(self) -> None:
        """Start it on what it kept; sessions of brokers that live go on. Raises BrokerError."""
        self._start()

    def _start(self, *more: str) -> None:
        options = ["--announce", "--exit-with-parent", "--log-level", self._log_level, "--log-name", "store"]
        self._child.spawn(["store", str(self._directory), *options, *more])
        self._child.wait_until_ready("ready", self._timeout_s)

    def stop(self) -> None:
        """Stop it in order. Raises BrokerError if it had ended by itself."""
        self._child.stop(STOP_S)

    def kill(self) -> None:
        """End it at once, as `kill -9` or a crash does."""
        self._child.reap(kill=True, within_s=0)


class ClusterBroker:
    """One broker of a cluster, which can be stopped, killed and started again on its data and its port."""

    def __init__(
        self,
        id_: int,
        child: Child,
        port: int,
        data: Path,
        arguments: list[str],
        timeout_s: float,
        clock: ClusterClock,
    ) -> None:
        self.id = id_
        self.data = data
        self._child = child
        self._port = port
        self._arguments = arguments
        self._clock = clock
        self._timeout_s = timeout_s
        self._faults: Faults | None = None

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "not running"
        return f"<barnabas broker {self.id} {self.bootstrap}, {state}>"

    @property
    def bootstrap(self) -> str:
        """Its `host:port`."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._child.running

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if it is not running."""
        return self._child.pid

    @property
    def control_url(self) -> str:
        """Where its control channel is; another one after each start. Raises BrokerError if it is not running."""
        return self._child.control_url()

    @property
    def faults(self) -> Faults:
        """What goes wrong with this broker on purpose, as with a `barnabas.Broker`."""
        if self._faults is None:
            from barnabas.control import Control
            from barnabas.faults import Faults

            self._faults = Faults(Control(self._child.control_url))
        return self._faults

    def start(self) -> None:
        """Start it; returns when it serves. After a kill that takes until its session has expired (six seconds, or
        what `zookeeper.session.timeout.ms` says). Raises BrokerError.
        """
        self._begin()
        self._finish()

    def stop(self) -> None:
        """Stop it in order: it hands over what it leads. Nothing happens if it was stopped or killed before.

        Raises BrokerError if it had ended by itself or had to be killed.
        """
        self._child.stop(STOP_S)

    def kill(self) -> None:
        """End it at once, as `kill -9` or a crash does: the others notice when its session has expired."""
        self._child.reap(kill=True, within_s=0)

    def restart(self) -> None:
        """Stop it (if it was not stopped or killed) and start it again."""
        self.stop()
        self.start()

    def _begin(self) -> None:
        ahead_s = self._clock.ahead_s
        self._child.spawn([*self._arguments, *(["--clock-ahead", f"{ahead_s:.6f}"] if ahead_s else [])])

    def _finish(self) -> None:
        self._child.wait_until_ready("bootstrap=", self._timeout_s, last="control=")


class Cluster:
    """Brokers 1 to N on free ports of this machine, ready to be connected to inside of a `with` statement.

    settings: of all brokers; Apache Kafka's own, by their dotted names. Topics have three replicas and need two of them
    for acks=all, where there are so many brokers and the settings do not say otherwise. security, users, data, topics,
    log_level: as `barnabas.Broker` has them. timeout_s: how long a start may take.

    `brokers[i]` can be killed, stopped and started; so can `store`, which keeps the metadata. Not for use by several
    threads at once.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        data: str | os.PathLike[str] | None = None,
        topics: Iterable[str] | Mapping[str, int] = (),
        log_level: str = "warn",
        timeout_s: float = 60.0,
    ) -> None:
        if not 0 < brokers <= 64:
            raise ValueError(f"barnabas.Cluster has 1 to 64 brokers, not {brokers}")
        said = {key: text_of(value) for key, value in (settings or {}).items()}
        for key in OWN:
            if key in said:
                raise ValueError(f"{key} is not among the settings of barnabas.Cluster: each broker has its own")
        for key in ("log.dirs", "log.dir"):
            if key in said:
                raise ValueError(f"{key} is not among the settings of barnabas.Cluster: say data=DIRECTORY")
        self._count = brokers
        self._settings = {**_defaults(brokers), **said}
        self._security = Security(security, users, "barnabas.Cluster")
        self._topics = topic_texts(topics, "barnabas.Cluster")
        self._data = None if data is None else Path(data).absolute()
        self._log_level = log_level
        self._timeout_s = timeout_s
        self._home: Home | None = None
        self._ports: list[socket.socket] = []
        self._brokers: list[ClusterBroker] = []
        self._store: ClusterStore | None = None
        self._clock = ClusterClock(lambda: [each.control_url for each in self._brokers if each.running])
        self._snapshots: dict[str, ClusterSnapshot] = {}

    def __repr__(self) -> str:
        running = sum(broker.running for broker in self._brokers)
        return f"<barnabas.Cluster, {running} of {self._count} brokers running>"

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[ClusterBroker]:
        """The brokers, in the order of their ids, from 1. Raises BrokerError before the first start."""
        if not self._brokers:
            raise BrokerError("the cluster was not started: use `with barnabas.Cluster(3) as cluster:`")
        return list(self._brokers)

    @property
    def store(self) -> ClusterStore:
        """The process that keeps the metadata. Raises BrokerError before the first start."""
        if self._store is None:
            raise BrokerError("the cluster was not started: use `with barnabas.Cluster(3) as cluster:`")
        return self._store

    @property
    def bootstrap(self) -> str:
        """`host:port` of all brokers, with commas. Raises BrokerError before the first start."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def running(self) -> bool:
        """Is any of its processes there?"""
        store = self._store is not None and self._store.running
        return store or any(broker.running for broker in self._brokers)

    @property
    def log(self) -> str:
        """What brokers and store have logged: the last 64 KiB, each line with a name. Empty when all went well."""
        return "" if self._home is None else Child("the cluster", self._home.path / "cluster.log").log

    @property
    def topics(self) -> Topics:
        """What was written: `cluster.topics["t"].records()`."""
        from barnabas.topics import Topics

        def access() -> ClientAccess | None:
            return self.access(ADMINISTRATOR) if self._security else None

        return Topics(self._running, access, self._timeout_s)

    @property
    def clock(self) -> ClusterClock:
        """What time it is for the brokers: `cluster.clock.advance("7d")`, for all at once."""
        return self._clock

    def _running(self) -> list[str]:
        return [broker.bootstrap for broker in self.brokers if broker.running]

    def access(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> ClientAccess:
        """As `barnabas.Broker.access`, for all brokers."""

        def place() -> tuple[str, Path]:
            bootstrap = self.bootstrap
            assert self._home is not None
            return bootstrap, self._home.path / "security"

        return self._security.access(user, mechanism, place)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start what does not run; returns when all brokers serve. Raises BrokerError."""
        is_first = self._home is None
        self._prepare()
        store, waiting = self.store, [broker for broker in self._brokers if not broker.running]
        try:
            if not store.running:
                # If no broker lives, nobody has to wait until the sessions of the dead have expired.
                store._start(*(["--end-sessions"] if len(waiting) == self._count else []))
            for broker in waiting:
                broker._begin()
            for broker in waiting:
                broker._finish()
        except BaseException:
            self.kill()
            raise
        if is_first:
            for text in self._topics:
                name, _, partitions = text.partition(":")
                self.create_topic(name, int(partitions) if partitions else None)
        return self

    def stop(self) -> None:
        """Stop what runs, in order. Raises BrokerError if something had ended by itself or had to be killed."""
        problems = []
        for pause_s in (AGAIN_S, 0):  # twice: stop, and hand nothing over, as nobody is left to take it
            running = [broker for broker in self._brokers if broker.running]
            for broker in running:
                broker._child.terminate()
            if running:
                time.sleep(pause_s)
        for part in self._parts():
            try:
                part.stop()
            except BrokerError as error:
                problems.append(str(error))
        if problems:
            raise BrokerError("\n".join(problems))

    def kill(self) -> None:
        """End everything at once, as a power cut does; the data stay."""
        for part in self._parts():
            part.kill()

    def close(self) -> None:
        """Stop it for good; removes its data if they were temporary. Raises BrokerError as `stop` does."""
        try:
            self.stop()
        finally:
            for sock in self._ports:
                sock.close()
            if self._home is not None:
                self._home.remove()
                for broker in self._brokers:
                    remove_all_of(broker.data)
            self._home, self._store, self._brokers, self._ports = None, None, [], []
            self._snapshots, self._clock.ahead_s = {}, 0.0

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(error, self.close)

    # -- topics and groups -------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        replicas: int | None = None,
    ) -> None:
        """Create a topic; clients of all brokers can use it at once. partitions, replicas: None for what the brokers'
        settings say. settings: of the topic. Raises BrokerError if the cluster refuses.
        """
        texts = {key: text_of(value) for key, value in (settings or {}).items()}
        count, copies = -1 if partitions is None else partitions, -1 if replicas is None else replicas
        self._ask(lambda cluster: cluster.create_topic(name, count, texts, copies))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, unless it is gone already. Raises BrokerError if the cluster refuses."""
        self._ask(lambda cluster: cluster.delete_topics([name]))

    def reset(self) -> None:
        """Delete all topics and groups, so that the next test finds a cluster as new. Raises BrokerError if members of
        groups come back, as consumers do that are not closed.
        """
        self._ask(lambda cluster: cluster.reset())

    def _ask(self, act: Callable[[BlockingCluster], None]) -> None:
        from barnabas.server.network.blocking_admin import Refused
        from barnabas.server.network.blocking_client import NoAnswer
        from barnabas.server.network.blocking_cluster import BlockingCluster

        tls = credentials = None
        if self._security:
            administrator = self.access(ADMINISTRATOR)
            credentials, tls = administrator.credentials, administrator.ssl_context()
        options: dict[str, Any] = {"client_id": KIT_CLIENT_ID, "tls": tls, "credentials": credentials}
        try:
            act(BlockingCluster(self._running(), timeout_s=self._timeout_s, **options))
        except (Refused, NoAnswer) as error:
            raise BrokerError(str(error)) from None

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Remember what is in the cluster now, for `restore`; nobody is disturbed. Raises BrokerError, also unless all
        brokers and the store are running.
        """
        if not (self.store.running and all(broker.running for broker in self._brokers)):
            raise BrokerError("a snapshot of a cluster is one of all its brokers and of its store: start them before")
        assert self._home is not None
        store, directory = self.store, self._home.path / "snapshots"
        still = store._child.standing_still()
        taken = take(self._clock, store.directory, still, directory, len(self._brokers))
        self._snapshots[taken.id] = taken
        return Snapshot(taken.id)

    def restore(self, snapshot: Snapshot) -> None:
        """Give the cluster what was in it at a snapshot, as often as is wanted; returns when all brokers serve: they
        are killed, and start on what they had. Faults end. Raises ValueError if it has no such snapshot, BrokerError;
        of one whose files are gone or damaged before anything has happened.
        """
        taken = self._snapshot(snapshot)
        data = [broker.data for broker in self._brokers]
        check(taken, data)
        self.kill()
        put_back(taken, self.store.directory, data)
        self._clock.ahead_s = taken.ahead_s
        self.start()

    def forget(self, snapshot: Snapshot) -> None:
        """Remove a snapshot. All are when the cluster is closed. Raises ValueError if it has none of that id."""
        forget(self._snapshot(snapshot), [broker.data for broker in self._brokers])
        del self._snapshots[snapshot.id]

    def _snapshot(self, snapshot: Snapshot) -> ClusterSnapshot:
        found = self._snapshots.get(snapshot.id)
        if found is None:
            raise ValueError(f"there is no snapshot {snapshot.id!r}")
        return found

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _parts(self) -> list[ClusterBroker | ClusterStore]:
        """All processes, in the order of their stop."""
        return [*self._brokers, *([] if self._store is None else [self._store])]

    def _prepare(self) -> None:
        """Directories, ports, and the processes that are to be."""
        if self._home is not None:
            return
        self._home = Home(self)
        home = self._home.path
        top = self._data or home / "data"
        top.mkdir(parents=True, exist_ok=True)
        log = home / "cluster.log"
        self._store = ClusterStore(Child("the metadata store", log), top / "store", self._log_level, self._timeout_s)
        for id_ in range(1, self._count + 1):
            reserved = reserve(0)
            self._ports.append(reserved)
            port, data = reserved.getsockname()[1], top / f"broker-{id_}"
            arguments = ["dev", "--port", str(port), "--data", str(data), "--log-level", self._log_level]
            arguments += ["--log-name", f"broker-{id_}", "--control", "127.0.0.1:0", "--exit-with-parent"]
            if self._data is None and id_ == 1:
                arguments.append(str(home))
            arguments += self._security.arguments(home / "security")
            own = {**self._settings, "broker.id": str(id_), "metadata.store.socket": str(self._store.socket)}
            for key, value in own.items():
                arguments += ["--set", f"{key}={value}"]
            child = Child(f"broker {id_}", log)
            self._brokers.append(ClusterBroker(id_, child, port, data, arguments, self._timeout_s, self._clock))


def _defaults(brokers: int) -> dict[str, str]:
    """As `barnabas cluster` has them."""
    replicas = min(brokers, 3)
    in_sync = 2 if replicas > 2 else 1
    values = {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "zookeeper.connection.timeout.ms": CONNECTION_MS,
    }
    return {key: str(value) for key, value in values.items()}
