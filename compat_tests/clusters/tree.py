"""What ZooKeeper, or the store of one machine, holds about the cluster: the truth that the brokers share."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError

from compat_tests.clusters.local_store import LocalClient

T = TypeVar("T")
ANSWER_S = 120
_AWAY = (ConnectionLoss, OperationTimeoutError, SessionExpiredError)
"""How kazoo ends what was under way when its connection or its session did: it connects again by itself."""


@dataclass(frozen=True)
class State:
    """A partition's state node."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    version: int


class Tree:
    """A connection to the ZooKeeper of the cluster, or to the socket of a store (a path); close it."""

    def __init__(self, connect: str) -> None:
        if connect.startswith("/"):
            self.client: Any = LocalClient(connect)
            return
        logging.getLogger("kazoo").setLevel(logging.ERROR)
        self.client = KazooClient(connect, timeout=30)
        self.client.start(timeout=ANSWER_S)

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()

    def ask(self, question: Callable[[Any], T]) -> T:
        """Return the client's answer to what may be asked twice; it is when the connection has ended meanwhile."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return question(self.client)
            except _AWAY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def json(self, path: str) -> Any:
        """Return the JSON of a node, None when there is none."""
        try:
            data, _ = self.ask(lambda client: client.get(path))
        except NoNodeError:
            return None
        return json.loads(data)

    def children(self, path: str) -> list[str]:
        """Return the names below a node, sorted; none when it is not there."""
        try:
            return sorted(self.ask(lambda client: client.get_children(path)))
        except NoNodeError:
            return []

    def _stat(self, path: str) -> Any:
        return self.ask(lambda client: client.exists(path))

    def brokers(self) -> dict[int, int]:
        """Return the registered brokers: id → broker epoch."""
        found = {}
        for name in self.children("/brokers/ids"):
            stat = self._stat(f"/brokers/ids/{name}")
            if stat is not None:
                found[int(name)] = stat.czxid
        return found

    def controller(self) -> int | None:
        """Return the id of the controller."""
        node = self.json("/controller")
        return None if node is None else int(node["brokerid"])

    def controller_epoch(self) -> int:
        """Return the controller epoch."""
        return int(self.json("/controller_epoch") or 0)

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """Return the replicas of each partition."""
        node = self.json(f"/brokers/topics/{topic}")
        return {} if node is None else {int(index): list(ids) for index, ids in node["partitions"].items()}

    def state(self, topic: str, index: int) -> State | None:
        """Return a partition's state."""
        path = f"/brokers/topics/{topic}/partitions/{index}/state"
        try:
            data, stat = self.ask(lambda client: client.get(path))
        except NoNodeError:
            return None
        node = json.loads(data)
        isr = tuple(node["isr"])
        return State(node["leader"], isr, node["leader_epoch"], node["controller_epoch"], stat.version)

    def states(self, topic: str) -> dict[int, State | None]:
        """Return the states of a topic's partitions."""
        return {index: self.state(topic, index) for index in sorted(self.assignment(topic))}

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return self.children("/brokers/topics")


@contextmanager
def tree(connect: str) -> Iterator[Tree]:
    """A connection for a while."""
    one = Tree(connect)
    try:
        yield one
    finally:
        one.close()
