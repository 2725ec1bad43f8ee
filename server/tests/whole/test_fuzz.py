"""The whole broker against clients that send anything: nothing is answered with a bug, nothing harms the others.

A bug of ours shows as a line at level ERROR (`barnabas.server.requests.dispatch` logs every exception that is not an
answer), as an answer that cannot be read, as a connection that is closed although its request was well-formed, or as a
witness whose own topic and group do not behave. Every test names its seed.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decode, response_class
from barnabas.kproto.frame import parse_response_header
from barnabas.kproto.messages import CreateTopicsRequest, FindCoordinatorRequest
from barnabas.server.apis import APIS
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.api import Api
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.network.tcp_rig import dialled, until
from barnabas.server.tests.whole.hostile import ANYTHING, FIXED_TOPICS, WELL_FORMED, World, damaged_frame
from compat_tests.fuzz.pools import Sent

CONNECTIONS = 6
PATIENCE_S = 2.0
"""Virtual. Who waits longer for his answer (a join, a long poll) is cut off, which is part of the test."""
PATIENCE_REAL_S = 0.2
HANGS_S = 240
WITNESS = "witness"
ROUND = 60
SERVED = tuple(api for api in APIS if api.is_served(clustered=False, telemetry=True))
SETTINGS = {"metrics_listener": "http://127.0.0.1:0"}
SEEDS_SHORT = range(3)
SEEDS_LONG = range(100, 108)


EXCUSED = re.compile(
    r"barnabas\.coordinators: record \d+ of __(consumer_offsets|transaction_state|share_group_state) .* is skipped"
)
"""A client with the id `__admin_client` may write to internal topics, as with Apache Kafka: also what is no group."""


UNREADABLE_ZEROS = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
"""Their numbers may not be zero: the connection is closed then, as Apache Kafka does."""


class Errors(logging.Handler):
    """Collects what is logged at ERROR and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []
        self._format = logging.Formatter("%(name)s: %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self._format.format(record))

    def none(self, when: str) -> None:
        """Nothing was logged since the last look."""
        lines, self.lines = [line for line in self.lines if not EXCUSED.match(line)], []
        assert not lines, f"{when}:\n" + "\n".join(dict.fromkeys(lines))


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Errors]:
    # The same interleaving of tasks for the same seed.
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr("trio._core._run._r", random.Random(0))
    handler = Errors()
    logger = logging.getLogger("barnabas")
    level = logger.level
    logger.setLevel(logging.ERROR)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


class Witness:
    """A well-behaved client with a topic of its own; what it wrote must be there, and nothing else."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.written: list[bytes] = []

    async def begin(self) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=WITNESS,
            num_partitions=1,
            replication_factor=1,
            # Of its own, because the hostile change the broker's.
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in [
                    ("retention.ms", "-1"),
                    ("retention.bytes", "-1"),
                    ("cleanup.policy", "delete"),
                    ("max.message.bytes", "1000000"),
                    ("min.insync.replicas", "1"),
                    ("segment.bytes", "1048576"),
                    ("compression.type", "producer"),
                    ("message.timestamp.type", "CreateTime"),
                    ("message.timestamp.after.max.ms", str(2**63 - 1)),
                ]
            ],
        )
        assert (await self.client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code == 0

    async def testify(self) -> None:
        value = b"%d" % len(self.written)
        answer = only(await self.client.ask(request(batch(value), topic=WITNESS), 9))
        assert (answer.error_code, answer.base_offset) == (0, len(self.written))
        self.written.append(value)
        await self.read(answer.base_offset)

    async def read(self, offset: int = 0) -> None:
        answer = await self.client.ask(fetch((WITNESS, 0, offset)), 12)
        assert values(flat(answer)[0]) == self.written[offset:]


async def provide(client: Client) -> None:
    """Make sure that there is something to attack, whatever was deleted."""
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=1,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact")]
            if name == "compacted"
            else [],
        )
        for name in FIXED_TOPICS
        if not name.startswith("__")
    ]
    for answer in (await client.ask(CreateTopicsRequest(topics=topics), 7)).topics:
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer
    group = FindCoordinatorRequest(coordinator_keys=["g0"])
    while (await client.ask(group, 6)).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:  # noqa: ASYNC110
        await trio.sleep(0.05)  # as clients do


class Attacker:
    """One connection that sends frames without waiting, and reads what comes back."""

    def __init__(self, world: World, client: Client) -> None:
        self._world = world
        self._client = client
        self._correlation_id = 0
        self.owed: list[tuple[int, Api, int, Sent]] = []
        self.answered = 0
        self.closed = False
        self.may_close = False

    async def send(self, api: Api, version: int, *, damage: bool = False) -> None:
        request = self._world.request(api, version, self._correlation_id)
        frame = damaged_frame(self._world.rng, request.frame) if damage else request.frame
        if api.key in UNREADABLE_ZEROS:
            self.may_close = True
        if request.is_answered:
            self.owed.append((self._correlation_id, api, version, request.sent))
        else:
            self.may_close = True  # the only way to say that it failed
        self._correlation_id += 1
        try:
            await self._client.stream.send_all(frame)
        except trio.BrokenResourceError:
            self.closed = True

    async def read(self) -> None:
        """Read until nothing is owed or the broker closes. Each answer must be whole, in order, and readable."""
        while self.owed and not self.closed:
            try:
                frame = await self._client.receive_frame()
            except (EOFError, trio.BrokenResourceError):
                self.closed = True
                return
            correlation_id, api, version, sent = self.owed.pop(0)
            assert int.from_bytes(frame[:4], "big") == correlation_id
            self._world.see(api.key, sent, read_answer(frame, api, version))
            self.answered += 1

    async def say_no_more(self) -> None:
        """Half-close: the broker answers what it was asked, and closes."""
        try:
            await self._client.stream.send_eof()  # type: ignore[attr-defined]
        except trio.BrokenResourceError:
            self.closed = True

    async def read_anything(self) -> None:
        """A damaged frame may be any request: check only that it ends."""
        try:
            while True:
                await self._client.receive_frame()
        except (EOFError, trio.BrokenResourceError):
            self.closed = True


def read_answer(frame: bytes, api: Api, version: int) -> Any:
    _, offset = parse_response_header(api.key, version, frame)
    try:
        answer = decode(response_class(api.key), version, frame, offset)
    except DecodeError as error:
        raise AssertionError(f"{api.key.name} v{version} is answered with what cannot be read: {error}") from None
    return answer


Dial = Callable[[Broker], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def attackers(broker: Broker, world: World, count: int, dial: Dial) -> AsyncIterator[list[Attacker]]:
    async with trio.open_nursery() as nursery:
        clients = []
        for _ in range(count):
            clients.append(await nursery.start(_connected, broker, dial))
        yield [Attacker(world, client) for client in clients]
        nursery.cancel_scope.cancel()


async def _connected(broker: Broker, dial: Dial, task_status: Any) -> None:
    async with dial(broker) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def attack(
    broker: Broker, world: World, plan: list[tuple[Api, int]], *, damage: float = 0.0, dial: Dial = connected
) -> int:
    """One round: the requests of `plan`, dealt to some connections. How many were answered."""
    world.look(broker)
    world.allow(ANYTHING if damage else WELL_FORMED)
    rng = world.rng
    sockets = dial is not connected
    # A damaged frame usually ends its connection: then what comes behind it is not looked at.
    async with attackers(broker, world, len(plan) // 2 if damage else CONNECTIONS, dial) as connections:
        for api, version in plan:
            await rng.choice(connections).send(api, version, damage=rng.random() < damage)
        with trio.move_on_after(PATIENCE_REAL_S if sockets else PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for each in connections:
                    if sockets:
                        await each.say_no_more()
                    nursery.start_soon(each.read_anything if damage else each.read)
        for each in connections:
            assert damage or each.may_close or not each.closed, f"closed on {each.owed[:3]}"
        return sum(each.answered for each in connections)


def versions(apis: tuple[Api, ...]) -> list[tuple[Api, int]]:
    return [(api, version) for api in apis for version in range(api.versions[0], api.versions[1] + 1)]


@asynccontextmanager
async def fuzzed(directory: Path, errors: Errors, seed: int) -> AsyncIterator[tuple[Broker, World, Witness]]:
    """A broker under attack; afterwards it must be able to start again on what is left on disk."""
    async with embedded_broker(directory, seed=seed, **SETTINGS) as broker, connected(broker) as client:
        witness = Witness(client)
        await witness.begin()
        world = World(random.Random(seed), (WITNESS,))
        await provide(client)
        yield broker, world, witness
        await witness.testify()
        assert all(not partition._waiters for partition in broker.services.partitions)
        assert all(not partition._commits for partition in broker.services.partitions)
    errors.none(f"seed {seed}: when the broker stopped")
    async with embedded_broker(directory, seed=seed) as broker, connected(broker) as client:
        witness.client = client
        await witness.read()
    errors.none(f"seed {seed}: when the broker started on what was left")


async def well_formed(directory: Path, errors: Errors, seed: int, each: int) -> None:
    """`each` requests per API, of random versions, in random order."""
    async with fuzzed(directory, errors, seed) as (broker, world, witness):
        rng = world.rng
        plan = [(api, rng.randint(*api.versions)) for api in SERVED for _ in range(each)]
        rng.shuffle(plan)
        answered = 0
        for at in range(0, len(plan), ROUND):
            answered += await attack(broker, world, plan[at : at + ROUND])
            errors.none(f"seed {seed}, requests {at} and following")
            await witness.testify()
            await provide(witness.client)
        # The rest waited for something, or stood behind what waited, or was a Produce with acks=0.
        assert answered > 0.6 * len(plan), f"seed {seed}"


async def damaged(directory: Path, errors: Errors, seed: int, each: int) -> None:
    """The same with damage in every other frame: connections close, and nothing else happens."""
    async with fuzzed(directory, errors, seed) as (broker, world, witness):
        rng = world.rng
        plan = [(api, rng.randint(*api.versions)) for api in SERVED for _ in range(each)]
        rng.shuffle(plan)
        for at in range(0, len(plan), ROUND):
            await attack(broker, world, plan[at : at + ROUND], damage=0.5)
            errors.none(f"seed {seed}, requests {at} and following")
            await witness.testify()
            await provide(witness.client)


@pytest.mark.parametrize("seed", SEEDS_SHORT)
async def test_any_values(seed: int, tmp_path: Path, errors: Errors, autojump_clock: trio.abc.Clock) -> None:
    await well_formed(tmp_path, errors, seed, 10)


@pytest.mark.parametrize("seed", SEEDS_SHORT)
async def test_any_bytes(seed: int, tmp_path: Path, errors: Errors, autojump_clock: trio.abc.Clock) -> None:
    await damaged(tmp_path, errors, seed, 10)


@pytest.mark.campaign
@pytest.mark.parametrize("damage", [0.0, 0.3])
async def test_over_sockets(damage: float, tmp_path: Path, errors: Errors) -> None:
    """The reactor carries the bytes; the clock is the real one, so what waits is cut off early."""
    async with fuzzed(tmp_path, errors, 7) as (broker, world, witness):
        plan = 10 * versions(SERVED)
        world.rng.shuffle(plan)
        for at in range(0, len(plan), 4 * ROUND):
            with trio.fail_after(HANGS_S):  # and says where, with less broken than the limit of a test leaves
                await attack(broker, world, plan[at : at + 4 * ROUND], damage=damage, dial=dialled)
                errors.none(f"requests {at} and following")
                await witness.testify()
                await provide(witness.client)
        with trio.fail_after(60):
            await until(lambda: not broker.parts.reactor.connections)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS_LONG)
async def test_any_values_long(seed: int, tmp_path: Path, errors: Errors, autojump_clock: trio.abc.Clock) -> None:
    await well_formed(tmp_path, errors, seed, 125)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS_LONG)
async def test_any_bytes_long(seed: int, tmp_path: Path, errors: Errors, autojump_clock: trio.abc.Clock) -> None:
    await damaged(tmp_path, errors, seed, 125)


@pytest.mark.parametrize("seed", SEEDS_SHORT)
async def test_a_broken_off_request(seed: int, tmp_path: Path, errors: Errors, autojump_clock: trio.abc.Clock) -> None:
    """Every API, its frame cut anywhere and the connection closed there: nothing is taken up, nothing is kept."""
    async with fuzzed(tmp_path, errors, seed) as (broker, world, witness):
        topics = set(broker.services.image.topics)
        for api, version in versions(APIS):
            async with connected(broker) as client:
                frame = world.request(api, version, 1).frame
                await client.stream.send_all(frame[: world.rng.randrange(len(frame))])
        await witness.testify()
        assert set(broker.services.image.topics) == topics
        errors.none(f"seed {seed}")
