"""A client of the simulated cluster, in the parts that matter: connections, metadata, patience.

`Client.ask_broker` sends one request to one broker and waits for the response; a connection may have many requests in
flight, and responses come in their order. A response that does not come although the broker and the link to it are
healthy is a violation: every request is answered or its connection closed.

Network errors raise `Gone`; error codes in responses are left to the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Protocol

import trio

from barnabas.kproto import ApiKey, ErrorCode, decode, response_class
from barnabas.kproto.frame import FrameSplitter, parse_response_header, request_frame
from barnabas.kproto.messages import FindCoordinatorRequest, MetadataRequest
from barnabas.server.sim.network import Network, Stream
from barnabas.server.sim.world import World

PATIENCE_S = 3.0
"""How long an answer may take when something is wrong with the broker or the way to it."""
LIMIT_S = 40.0
"""How long it may take when nothing is: longer than any wait of the requests made here."""


class Gone(Exception):
    """No answer: refused, reset, or out of patience. Whether the request was carried out is unknown."""


class Paths(Protocol):
    """What the simulation knows of the ways to brokers."""

    def calm_since(self, broker_id: int) -> float:
        """Since when the broker runs and the way between it and the client is well; infinity if it is not."""


class _Connection:
    """One connection; answers are handed out by `_read` in the order of the requests."""

    def __init__(self, client: Client, broker_id: int, stream: Stream) -> None:
        self.client = client
        self.broker_id = broker_id
        self.stream = stream
        self.is_open = True
        self._correlation_id = 0
        self._waiting: deque[_Answer] = deque()

    async def send(self, request: Any, version: int) -> _Answer:
        if not self.is_open:
            raise Gone("closed")
        self._correlation_id += 1
        answer = _Answer(request, version, self._correlation_id)
        self._waiting.append(answer)
        try:
            await self.stream.send_all(request_frame(version, self._correlation_id, self.client.name, request))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()
            raise Gone("broken") from None
        return answer

    async def read(self) -> None:
        splitter = FrameSplitter(1 << 26)
        try:
            while self.is_open:
                data = await self.stream.receive_some(1 << 16)
                if not data:
                    break
                for frame in splitter.feed(data):
                    answer = self._waiting.popleft() if self._waiting else None
                    correlation_id, offset = (
                        parse_response_header(answer.key, answer.version, frame) if answer else (-1, 0)
                    )
                    if answer is None or correlation_id != answer.correlation_id:
                        self.client.world.violation(f"broker {self.broker_id} answers {correlation_id} out of turn")
                        return
                    answer.set(decode(response_class(answer.key), answer.version, frame, offset))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.stream.close()
            for answer in self._waiting:
                answer.set(None)
            self._waiting.clear()


class _Answer:
    __slots__ = ("correlation_id", "done", "key", "response", "version")

    def __init__(self, request: Any, version: int, correlation_id: int) -> None:
        self.key = ApiKey(request.__description__.api_key)
        self.version = version
        self.correlation_id = correlation_id
        self.done = trio.Event()
        self.response: Any = None

    def set(self, response: Any) -> None:
        self.response = response
        self.done.set()


class Client:
    """See the module. name: client id; all clients are on one host, `host`."""

    def __init__(
        self, world: World, network: Network, paths: Paths, name: str, brokers: list[int], rng: Random
    ) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.brokers = brokers
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}  # (epoch, broker)
        self.controller = -1
        self._network = network
        self._paths = paths
        self._connections: dict[int, _Connection] = {}
        self._refreshing: trio.Event | None = None

    # -- requests ----------------------------------------------------------------------------------------------------

    async def connection(self, broker_id: int) -> _Connection:
        """The connection to a broker, made if there is none. Raises Gone."""
        found = self._connections.get(broker_id)
        if found is not None and found.is_open:
            return found
        try:
            with trio.fail_after(PATIENCE_S):
                stream = await self._network.connect("client", f"broker-{broker_id}")
        except (OSError, trio.TooSlowError):
            raise Gone("refused") from None
        found = self._connections.get(broker_id)
        if found is not None and found.is_open:  # another task was faster
            stream.close()
            return found
        connection = self._connections[broker_id] = _Connection(self, broker_id, stream)
        self.world.nursery.start_soon(connection.read)
        return connection

    async def ask_broker(self, broker_id: int, request: Any, version: int) -> Any:
        """Send and wait. Raises Gone."""
        connection = await self.connection(broker_id)
        return await self.wait(connection, await connection.send(request, version))

    async def wait(self, connection: _Connection, answer: _Answer) -> Any:
        """The answer's response. Raises Gone."""
        since = self.world.now
        with trio.move_on_after(PATIENCE_S):
            await answer.done.wait()
        while not answer.done.is_set():
            if self._paths.calm_since(connection.broker_id) > since:
                connection.close()
                raise Gone("no answer")
            if self.world.now > since + LIMIT_S:
                self.world.violation(f"broker {connection.broker_id} does not answer {answer.key.name}")
                raise Gone("no answer")
            with trio.move_on_after(PATIENCE_S):
                await answer.done.wait()
        if answer.response is None:
            raise Gone("reset")
        return answer.response

    def is_settled(self, broker_ids: Iterable[int]) -> bool:
        """Whether these brokers have run, and could be reached, for so long that every controller must know them."""
        return all(self._paths.calm_since(broker_id) + LIMIT_S < self.world.now for broker_id in broker_ids)

    def any_broker(self) -> int:
        return self.rng.choice(self.brokers)

    async def pause(self, low_s: float = 0.05, high_s: float = 0.4) -> None:
        """Back off."""
        await trio.sleep(self.rng.uniform(low_s, high_s))

    # -- metadata ----------------------------------------------------------------------------------------------------

    async def leader(self, topic: str, index: int) -> int:
        """The leader as far as is known; asks brokers until one knows."""
        while (topic, index) not in self.leaders or self.leaders[topic, index][1] < 0:
            await self.refresh()
        return self.leaders[topic, index][1]

    async def refresh(self) -> None:
        """Request metadata of a broker, after a short pause; calls made meanwhile share the response."""
        if self._refreshing is not None:
            await self._refreshing.wait()
            return
        self._refreshing = trio.Event()
        try:
            await self.pause()
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            response = await self.ask_broker(self.any_broker(), request, 9)
            self.controller = response.controller_id
            for topic in response.topics:
                for partition in topic.partitions:
                    key = topic.name, partition.partition_index
                    leader = -1 if partition.error_code else partition.leader_id
                    if partition.leader_epoch >= self.leaders.get(key, (-1, -1))[0]:
                        self.leaders[key] = partition.leader_epoch, leader
        except Gone:
            pass
        finally:
            self._refreshing.set()
            self._refreshing = None

    async def ask_leader(self, topic: str, index: int, request: Any, version: int) -> Any:
        return await self.ask_broker(await self.leader(topic, index), request, version)

    async def ask_controller(self, request: Any, version: int, refused: Callable[[Any], bool]) -> Any:
        """Send a request to the present controller; again while `refused(response)` (NOT_CONTROLLER)."""
        while True:
            try:
                if self.controller < 0:
                    await self.refresh()
                if self.controller >= 0:
                    response = await self.ask_broker(self.controller, request, version)
                    if not refused(response):
                        return response
            except Gone:
                pass
            self.controller = -1
            await self.pause()

    async def coordinator(self, key: str, kind: int = 0) -> int:
        """The coordinator of a group (kind 0) or a transactional id (1); asks until a broker knows it."""
        while True:
            try:
                request = FindCoordinatorRequest(key=key, key_type=kind)
                response = await self.ask_broker(self.any_broker(), request, 3)
                if response.error_code == ErrorCode.NONE:
                    return int(response.node_id)
            except Gone:
                pass
            await self.pause()
