"""A cluster: ZooKeeper (one server or several) or the store of one machine, and several brokers, started, hurt, healed
and described.

    with Cluster(directory, [OURS, OURS, KAFKA], network=True) as cluster:
        cluster.create_topic("t", partitions=6)
        cluster.node(cluster.leader("t", 0)).kill()
        cluster.wait_healthy()

Broker ids count from 1. Without *network* all listen on 127.0.0.1; with it each process has a network namespace and
can be cut off from any other (`cut_zookeeper`, `cut_brokers`, `heal`). Times are seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from compat_tests.clusters.local_store import StoreProcess
from compat_tests.clusters.network import Network
from compat_tests.clusters.nodes import KAFKA, NODES, Node, NodeFailed
from compat_tests.clusters.tree import State, Tree
from compat_tests.harness.ports import free_ports
from compat_tests.harness.zookeeper import Ensemble, ZooKeeper, ensemble, start_zookeeper

ZOOKEEPER = "zk"
START_TIMEOUT_S = 400
HEALTHY_TIMEOUT_S = 180
SESSION_TIMEOUT_MS = 6000
BROKER_PORT, ZOOKEEPER_PORT = 9092, 2181

# Short times, so that a round of failure takes seconds; otherwise what a careful operator sets.
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "60000",  # a start is late on a busy machine, and no failure
    "replica.lag.time.max.ms": "5000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "10",
    "log.cleaner.enable": "false",
}


class Cluster:
    """ZooKeeper and the brokers of *kinds* (`nodes.OURS`, `nodes.KAFKA`); a context manager starts and ends them.

    *local*: `barnabas store` in the place of ZooKeeper, for brokers of ours.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        *,
        network: bool = False,
        settings: Mapping[str, str] | None = None,
        chroot: str = "",
        start: bool = True,
        zookeepers: int = 1,
        local: bool = False,
    ) -> None:
        self.directory = directory
        self.network = Network([ZOOKEEPER, *(f"b{number}" for number in range(1, len(kinds) + 1))]) if network else None
        self._chroot = chroot
        self._start = start
        self._ports = [BROKER_PORT] * len(kinds) if network else free_ports(len(kinds))
        self._kinds = list(kinds)
        self._settings = {**SETTINGS, **(settings or {})}
        self._zookeepers = zookeepers
        self.store = StoreProcess(directory / "store") if local else None
        self._ensemble: Ensemble | None = None
        self._rest = ExitStack()
        self.zookeeper: ZooKeeper | None = None
        self.nodes: dict[int, Node] = {}
        self._tree: Tree | None = None

    # Life

    def __enter__(self) -> Cluster:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.store is None:
            self.start_zookeeper()
        else:
            self.store.start()
        for number, (kind, port) in enumerate(zip(self._kinds, self._ports, strict=True), 1):
            self.add_node(number, kind, port)
        if self._start:
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_open()
            self.wait_registered()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper; what starts it again on its data is `zookeeper.start()`."""
        if self._zookeepers > 1:
            self._ensemble = self._rest.enter_context(ensemble(self.directory / "zookeeper", self._zookeepers))
            self.zookeeper = self._ensemble.servers[0]
            return
        host = self.network.address(ZOOKEEPER) if self.network else "127.0.0.1"
        prefix = self.network.prefix(ZOOKEEPER) if self.network else ()
        port = ZOOKEEPER_PORT if self.network else 0
        self.zookeeper = start_zookeeper(self.directory / "zookeeper", host=host, port=port, prefix=prefix)

    @property
    def ensemble(self) -> Ensemble:
        """The ZooKeeper servers of a cluster that was made with several."""
        assert self._ensemble is not None
        return self._ensemble

    @property
    def _connect(self) -> str:
        """What brokers and tools are told of ZooKeeper, or the path of the store's socket."""
        if self.store is not None:
            return self.store.connect
        assert self.zookeeper is not None
        return (self._ensemble or self.zookeeper).connect + self._chroot

    def add_node(self, number: int, kind: str, port: int = 0, **settings: str) -> Node:
        """Make a broker of the cluster, not yet started."""
        host = self.network.address(f"b{number}") if self.network else "127.0.0.1"
        prefix = self.network.prefix(f"b{number}") if self.network else ()
        key = "zookeeper.connect" if self.store is None else "metadata.store.socket"
        given = {key: self._connect, **self._settings, **settings}
        address = (host, port or free_ports(1)[0])
        node = NODES[kind](number, self.directory / f"broker-{number}", address, given, prefix)
        self.nodes[number] = node
        return node

    def replace(self, number: int, kind: str) -> Node:
        """Put a broker of the other kind onto the (stopped) broker's directory, id and address."""
        old = self.nodes[number]
        assert not old.alive
        node = NODES[kind](number, old.directory, old.address, old.settings, old.prefix)
        self.nodes[number] = node
        return node

    def close(self) -> None:
        """End everything that runs, the hard way for what does not stop; nothing is left behind."""
        for node in self.nodes.values():
            if node.alive:
                node.resume()
                node.kill()
        if self._tree is not None:
            self._tree.close()
            self._tree = None
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if self.store is not None:
            self.store.stop()
        self._rest.close()
        if self.network is not None:
            self.network.close()

    def stop_all(self) -> dict[int, int]:
        """Stop the brokers one after another, controlled; return their exit statuses."""
        return {number: node.stop() for number, node in self.nodes.items() if node.alive}

    # Pictures

    @property
    def tree(self) -> Tree:
        """A connection to its ZooKeeper."""
        if self._tree is None:
            self._tree = Tree(self._connect)
        return self._tree

    def node(self, number: int | None) -> Node:
        """Return a broker by its id."""
        assert number is not None, "there is no such broker now"
        return self.nodes[number]

    @property
    def living(self) -> list[Node]:
        """The brokers that run and are not paused."""
        return [node for node in self.nodes.values() if node.alive and not node.paused]

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        """A new admin client of the whole cluster: an old one remembers who was controller."""
        return self.admin_of(self.bootstrap)

    @staticmethod
    def admin_of(bootstrap: str, **settings: Any) -> AdminClient:
        """A new admin client."""
        return AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,
                "socket.timeout.ms": 10000,
                "reconnect.backoff.max.ms": 500,
                **settings,
            }
        )

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int | list[list[int]] = 3, **config: str | int
    ) -> None:
        """Create a topic (dots in config names as underscores) and wait until its leaders are known."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        if isinstance(replicas, int):
            # The controller hears of brokers that have registered a moment later.
            self.wait(lambda: self.known() >= replicas, f"{replicas} brokers are known")
            topic = NewTopic(name, partitions, replicas, config=settings)
        else:
            topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        self.ask(lambda admin: admin.create_topics([topic], request_timeout=10), KafkaError.TOPIC_ALREADY_EXISTS)
        count = partitions if isinstance(replicas, int) else len(replicas)
        self.wait(lambda: self.is_served(name, count), f"{name} has leaders")

    def ask(
        self, question: Callable[[AdminClient], Mapping[Any, Future[Any]]], had: int | None = None
    ) -> dict[Any, Any]:
        """Ask the cluster for something; again with a new client while the answer is that another is controller.

        *had* is the error that says, of a second attempt, that the first one did it. Raises KafkaException.
        """
        return ask(lambda: self.admin, question, had)

    def known(self) -> int:
        """Return how many brokers the controller has told of."""
        return len(self.admin.list_topics(timeout=20).brokers)

    def is_served(self, name: str, count: int) -> bool:
        """Return whether all brokers that run know a topic with so many partitions, each with a leader."""
        for node in self.living:
            found = self.admin_of(node.bootstrap).list_topics(name, timeout=20).topics.get(name)
            if found is None or len(found.partitions) != count:
                return False
            if any(partition.leader < 0 for partition in found.partitions.values()):
                return False
        return True

    def leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition, -1 when it has none."""
        state = self.tree.state(topic, index)
        return -1 if state is None else state.leader

    def led_by(self, topic: str, number: int) -> list[int]:
        """Return the partitions a broker leads."""
        return [index for index, state in self.tree.states(topic).items() if state and state.leader == number]

    def controller(self) -> int:
        """Return the controller; waits for one."""
        self.wait(lambda: self.tree.controller() is not None, "there is a controller")
        found = self.tree.controller()
        return self.controller() if found is None else found

    def unhealthy(self) -> list[str]:
        """Return what is not as it should be when every broker runs: nothing means healthy."""
        wrong = []
        registered = self.tree.brokers()
        missing = sorted(self.nodes.keys() - registered.keys())
        if missing:
            wrong.append(f"not registered: {missing}")
        if self.tree.controller() is None:
            wrong.append("no controller")
        for topic in self.tree.topics():
            assignment = self.tree.assignment(topic)
            for index, replicas in assignment.items():
                state = self.tree.state(topic, index)
                if not _whole(state, replicas):
                    wrong.append(f"{topic}-{index}: replicas {replicas}, {state}")
        return wrong

    def wait_healthy(self, timeout: float = HEALTHY_TIMEOUT_S) -> float:
        """Return the seconds it took until all brokers are there and all replicas in sync. Raises NodeFailed."""
        begun = time.monotonic()
        self.wait(lambda: not self.unhealthy(), lambda: f"healthy: {self.unhealthy()}", timeout)
        return time.monotonic() - begun

    def wait_registered(self, numbers: Iterable[int] | None = None, timeout: float = START_TIMEOUT_S) -> None:
        """Return when the brokers (default: all) are registered and there is a controller."""
        wanted = set(numbers or self.nodes)
        self.wait(
            lambda: wanted <= self.tree.brokers().keys() and self.tree.controller() is not None,
            lambda: f"{sorted(wanted)} are registered: {sorted(self.tree.brokers())}",
            timeout,
        )

    def wait_gone(self, number: int, timeout: float = 120) -> None:
        """Return when a broker is not registered any more."""
        self.wait(lambda: number not in self.tree.brokers(), f"broker {number} is gone from ZooKeeper", timeout)

    def wait(
        self, condition: Callable[[], object], what: str | Callable[[], str], timeout: float = 120, pause: float = 0.1
    ) -> None:
        """Return when *condition* holds; it does not while a question in it, of a client's or to ZooKeeper, is refused
        or not answered. Raises NodeFailed with the ends of all logs when it does not in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            for node in self.nodes.values():
                if node.wants_another_start:
                    node.start()
            refusal = None
            try:
                if condition():
                    return
            except (KafkaException, TimeoutError) as refused:
                refusal = refused
            if time.monotonic() > deadline:
                said = what if isinstance(what, str) else what()
                raise NodeFailed(f"waited {timeout} s in vain until {said} ({refusal})\n{self.logs()}")
            time.sleep(pause)

    def logs(self, size: int = 2500) -> str:
        """The ends of the logs of all brokers."""
        return "\n".join(f"=== {node}\n{node.log_tail(size)}" for node in self.nodes.values())

    # Faults

    def start_node(self, number: int, *, wait: bool = True) -> None:
        """Start a broker that does not run.

        Apache Kafka refuses to start while its former life is still registered, so for it that is waited for.
        """
        node = self.nodes[number]
        if node.kind == KAFKA:
            self.wait_gone(number)
        node.start()
        if wait:
            node.wait_open()

    def make_controller(self, wanted: Iterable[int]) -> int:
        """Have one of *wanted* be controller: the others sleep for the moment of the election. Returns when all brokers
        are registered and know the controller.
        """
        wanted = set(wanted)
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := self.controller()) not in wanted or not self._is_known(found):
            if found not in wanted:
                self._elect(wanted)
            if time.monotonic() > deadline:
                raise NodeFailed(f"none of {wanted} is controller, and known to all as that\n{self.logs()}")
        return found

    def _elect(self, wanted: set[int]) -> None:
        """Let *wanted* elect a controller, for as long as the others can sleep and keep their sessions."""
        session_s = int(self._settings["zookeeper.session.timeout.ms"]) / 1000
        others = [node for number, node in self.nodes.items() if number not in wanted and node.alive]
        for node in others:
            node.pause()
        try:
            with suppress(NoNodeError):
                self.tree.ask(lambda client: client.delete_async("/controller"))
            with suppress(NodeFailed):
                self.wait(lambda: self.tree.controller() in wanted, "", min(session_s * 0.7, 20))
        finally:
            for node in others:
                node.resume()

    def _is_known(self, controller: int) -> bool:
        """Return, once all brokers that run are registered, whether they take this one for the controller. It works as
        one from then on: its node in ZooKeeper is there a moment earlier.
        """
        self.wait_registered(node.number for node in self.living)

        def is_told() -> bool:
            told = [self.admin_of(node.bootstrap).list_topics(timeout=20).controller_id for node in self.living]
            return told == [controller] * len(told) or self.tree.controller() != controller

        self.wait(is_told, f"{controller} is known as controller")
        return self.tree.controller() == controller

    def expire_session(self, number: int) -> None:
        """End the ZooKeeper session of a broker. Does nothing when it has none."""
        assert self.zookeeper is not None
        path = f"{self._chroot}/brokers/ids/{number}"
        deadline = time.monotonic() + 120
        while True:
            try:
                with suppress(NoNodeError):
                    self.zookeeper.expire(path)
                return
            except (OSError, ConnectionLoss, KazooTimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def cut_zookeeper(self, number: int) -> None:
        """A broker and ZooKeeper hear nothing of each other."""
        assert self.network is not None
        self.network.cut(f"b{number}", [ZOOKEEPER])

    def cut_brokers(self, number: int, others: Iterable[int] | None = None) -> None:
        """A broker and others (default: all others) hear nothing of each other."""
        assert self.network is not None
        names = [f"b{other}" for other in (others or self.nodes) if other != number]
        self.network.cut(f"b{number}", names)

    def heal(self) -> None:
        """Undo every cut."""
        if self.network is not None:
            self.network.heal()


def ask(
    admin_of: Callable[[], AdminClient],
    question: Callable[[AdminClient], Mapping[Any, Future[Any]]],
    had: int | None = None,
) -> dict[Any, Any]:
    """Ask for something with a new client each time, until the answer is another than that one must ask again.

    *had* is the error that says, of a second attempt, that the first one did it. Raises KafkaException.
    """
    deadline = time.monotonic() + 120
    again = False
    while True:
        try:
            # Kept in a variable: a client that nobody holds any more takes its futures with it.
            admin = admin_of()
            return done(question(admin))
        except KafkaException as refused:
            code = refused.args[0].code()
            if again and code == had:
                return {}
            if code not in _ASK_AGAIN or time.monotonic() > deadline:
                raise
            again = True
            time.sleep(0.2)


_ASK_AGAIN = (
    KafkaError.NOT_CONTROLLER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)


def done(futures: Mapping[Any, Future[Any]], timeout: float = 60) -> dict[Any, Any]:
    """Wait for what an admin client was asked. Raises its KafkaException."""
    return {key: future.result(timeout) for key, future in futures.items()}


def _whole(state: State | None, replicas: Sequence[int]) -> bool:
    return state is not None and state.leader >= 0 and set(state.isr) == set(replicas)
