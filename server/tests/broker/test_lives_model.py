"""Whatever is done to a broker after a snapshot, restored it is as it was: random operations from a seed, and time."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.kproto import ErrorCode as E
from barnabas.server.broker.lives import Lives
from barnabas.server.client.client import Client
from barnabas.server.client.configs import Resource, ResourceKind, alter_configs
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.groups.groups import delete_groups
from barnabas.server.client.offsets import delete_records
from barnabas.server.client.topics import NewTopic, add_partitions, create_topics, delete_topics
from barnabas.server.runtime.virtual_clock import VirtualClock
from barnabas.server.tests.broker.lives_kit import (
    Transactional,
    client_of,
    groups_of,
    join,
    living,
    logs_of,
    produce,
    topics_of,
)

FIRST = int(os.environ.get("BARNABAS_LIVES_FIRST", "0"))
SEEDS = int(os.environ.get("BARNABAS_LIVES_SEEDS", "2"))
STEPS = 8
TOPICS = ("a", "b", "c")
POLICIES = ("delete", "compact", "compact,delete")


@pytest.fixture
def clock() -> VirtualClock:
    """Of the test's loop."""
    return VirtualClock()


class User:
    """Does things to a broker, as far as they are possible."""

    def __init__(self, lives: Lives, client: Client, rng: Random) -> None:
        self._lives = lives
        self._client = client
        self._rng = rng
        self._transactions: list[Transactional] = []
        self._count = 0
        every: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (8, self.produce),
            (2, self.create),
            (1, self.delete),
            (1, self.add_partitions),
            (2, self.delete_records),
            (2, self.configure),
            (3, self.commit),
            (1, self.delete_group),
            (1, self.join),
            (3, self.transact),
            (3, self.end_transaction),
            (2, self.wait),
        ]
        self._actions = [action for weight, action in every for _ in range(weight)]

    async def act(self) -> None:
        await self._rng.choice(self._actions)()

    def forget(self) -> None:
        """The broker is as it was before: its transactions are other ones."""
        self._transactions = []

    def _partition(self) -> tuple[str, int] | None:
        topics = {name: len(topic.partitions) for name, topic in self._lives.services.image.topics.items()}
        names = sorted(topics.keys() & set(TOPICS))
        if not names:
            return None
        name = self._rng.choice(names)
        return name, self._rng.randrange(topics[name])

    def _values(self) -> list[bytes]:
        self._count += 1
        return [b"%d" % (self._count % 7) + b"x" * self._rng.randrange(100) for _ in range(self._rng.randint(1, 4))]

    async def produce(self) -> None:
        if (place := self._partition()) is not None:
            await produce(self._lives, place[0], self._values(), place[1], keyed=True)

    async def create(self) -> None:
        settings = {"segment.bytes": "1000", "cleanup.policy": self._rng.choice(POLICIES)}
        await create_topics(
            self._client, [NewTopic(self._rng.choice(TOPICS), self._rng.randint(1, 3), settings=settings)]
        )

    async def delete(self) -> None:
        if (place := self._partition()) is not None:
            await delete_topics(self._client, [place[0]])

    async def add_partitions(self) -> None:
        if (place := self._partition()) is not None:
            await add_partitions(self._client, {place[0]: self._rng.randint(2, 4)})

    async def delete_records(self) -> None:
        if (place := self._partition()) is not None:
            log = self._lives.services.partitions.get(*place).log
            await delete_records(self._client, {place: self._rng.randint(log.log_start_offset, log.log_end_offset)})

    async def configure(self) -> None:
        if (place := self._partition()) is not None:
            value = self._rng.choice([None, "3600000", "86400000"])
            await alter_configs(self._client, {Resource(ResourceKind.TOPIC, place[0]): {"retention.ms": value}})

    async def commit(self) -> None:
        if (place := self._partition()) is not None:
            await commit_offsets(self._client, self._rng.choice("gh"), {place: self._rng.randrange(100)})

    async def delete_group(self) -> None:
        await delete_groups(self._client, [self._rng.choice("ghm")])

    async def join(self) -> None:
        await join(self._lives, "m")

    async def transact(self) -> None:
        if (place := self._partition()) is None:
            return
        # No sum of waits comes near that time-out: real time passes too, more of it on a busy machine.
        producer = Transactional(self._lives, f"t{self._rng.randrange(3)}", timeout_ms=900_000)
        self._transactions = [each for each in self._transactions if each.name != producer.name]
        await producer.begin()
        await producer.write(*place, self._values())
        self._transactions.append(producer)

    async def end_transaction(self) -> None:
        if self._transactions:
            code = await self._transactions.pop().end(commit=self._rng.random() < 0.5)
            assert code in (E.NONE, E.PRODUCER_FENCED, E.INVALID_TXN_STATE), code  # it may have run out of time

    async def wait(self) -> None:
        await self._lives.advance(self._rng.choice([1, 30, 600, 7200]))


async def seen(lives: Lives, client: Client) -> dict[str, Any]:
    return {"logs": logs_of(lives), "topics": topics_of(lives), **await groups_of(client)}


async def run(seed: int, clock: VirtualClock, directory: Path, steps: int) -> None:
    rng = Random(seed)
    settings = {
        "log_cleaner_backoff_ms": "5000",
        "transaction_state_log_num_partitions": "5",
        "log_cleaner_min_cleanable_ratio": "0.1",
    }
    async with living(directory, clock, **settings) as lives, client_of(lives) as client:
        user = User(lives, client, rng)
        for _ in range(rng.randint(0, steps)):
            await user.act()
        snapshots: dict[str, dict[str, Any]] = {}
        for _ in range(3):
            for _ in range(rng.randint(0, steps)):
                await user.act()
            await lives.advance(20)  # a start compacts at once what is due
            name = await lives.snapshot()
            snapshots[name] = await seen(lives, client)
            for _ in range(rng.randint(0, steps)):
                await user.act()
            chosen = rng.choice(list(snapshots))
            await lives.restore(chosen)
            user.forget()
            found = await seen(lives, client)
            for key, was in snapshots[chosen].items():
                assert found[key] == was, f"seed {seed}: {key}"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_restored_it_is_as_it_was(seed: int, clock: VirtualClock, tmp_path: Path) -> None:
    await run(seed, clock, tmp_path, STEPS)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1000, 1012))
async def test_restored_it_is_as_it_was_for_longer(seed: int, clock: VirtualClock, tmp_path: Path) -> None:
    await run(seed, clock, tmp_path, 6 * STEPS)
