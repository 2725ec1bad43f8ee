"""What ZooKeeper, or the store of one machine, holds about the cluster: the truth that the brokers share."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from compat_tests.clusters.local_store import LocalClient

ANSWER_S = 120.0
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


class Session:
    """A session with ZooKeeper, with as much of kazoo's face as is wanted here. Each question may be asked twice, and
    is when the connection has ended meanwhile. While no server is there kazoo keeps questions for as long as that
    lasts; here they raise TimeoutError after *answer_s*.
    """

    def __init__(self, connect: str, answer_s: float = ANSWER_S) -> None:
        logging.getLogger("kazoo").setLevel(logging.ERROR)
        self._connect = connect
        self._answer_s = answer_s
        self._kazoo = KazooClient(connect, timeout=30)
        self._kazoo.start(timeout=ANSWER_S)

    def close(self) -> None:
        """End it."""
        self._kazoo.stop()
        self._kazoo.close()

    def get(self, path: str) -> Any:
        """Return data and numbers of a node. Raises NoNodeError."""
        return self.ask(lambda client: client.get_async(path))

    def exists(self, path: str) -> Any:
        """Return the numbers of a node, None when there is none."""
        return self.ask(lambda client: client.exists_async(path))

    def get_children(self, path: str) -> Any:
        """Return the names below a node. Raises NoNodeError."""
        return self.ask(lambda client: client.get_children_async(path))

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Return what kazoo's client answers in the end to one of its `…_async` calls; raises what that does."""
        deadline = time.monotonic() + self._answer_s
        while True:
            try:
                return question(self._kazoo).get(timeout=max(0.0, deadline - time.monotonic()))
            except KazooTimeoutError:
                raise TimeoutError(f"ZooKeeper at {self._connect} did not answer in {self._answer_s:g} s") from None
            except _AWAY:
                time.sleep(0.1)


class Tree:
    """A connection to the ZooKeeper of the cluster, or to the socket of a store (a path); close it. What it is asked
    raises TimeoutError, or the store's OSError, when that does not answer.
    """

    def __init__(self, connect: str) -> None:
        self._client: Any = LocalClient(connect) if connect.startswith("/") else Session(connect)

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def json(self, path: str) -> Any:
        """Return the JSON of a node, None when there is none."""
        try:
            data, _ = self._client.get(path)
        except NoNodeError:
            return None
        return json.loads(data)

    def children(self, path: str) -> list[str]:
        """Return the names below a node, sorted; none when it is not there."""
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def brokers(self) -> dict[int, int]:
        """Return the registered brokers: id → broker epoch."""
        found = {}
        for name in self.children("/brokers/ids"):
            stat = self._client.exists(f"/brokers/ids/{name}")
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
            data, stat = self._client.get(path)
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

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Return what ZooKeeper answers to one of kazoo's `…_async` calls; raises what that does."""
        return self._client.ask(question)
