"""`Desk`: the client, and what it was told a moment ago, which pages share.

What belongs to the whole cluster (every topic, every group with its lag) is asked for at most every few seconds however
many look at pages, and by one visitor at a time; the others wait for the same answer. What belongs to one topic or
group is asked for with each page. After a change everything is forgotten.

A search reads on a lane of its own, a connection to each broker; there are `LANES` of them, and who comes later waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.groups.groups import list_groups
from barnabas.server.client.groups.lag import GroupLag, lags
from barnabas.server.client.groups.values import ListedGroup
from barnabas.server.client.log_dirs import LogDir, describe_log_dirs
from barnabas.server.client.topics import list_topics
from barnabas.server.client.view import TopicView
from barnabas.server.console.avro.book import Given

T = TypeVar("T")

TOPICS_S: Final = 3.0
GROUPS_S: Final = 3.0
SIZES_S: Final = 15.0
GROUPS_MAX: Final = 1000
"""How many groups the lag is worked out of for pages of all; of the others, where they are shown."""
"""The kinds of groups that have one."""
LANES: Final = 4
TAILS: Final = 8
"""How many live tails there may be, each with connections of its own."""


class Kept(Generic[T]):
    """The last answer, until it is `age_s` old."""

    def __init__(self, ask: Callable[[], Awaitable[T]], age_s: float) -> None:
        self._ask = ask
        self._age_s = age_s
        self._lock = trio.Lock()
        self._value: T | None = None
        self._at = float("-inf")

    async def get(self) -> T:
        """Raises what asking raises."""
        async with self._lock:
            if self._value is None or trio.current_time() - self._at > self._age_s:
                began = trio.current_time()
                self._value = await self._ask()
                # An answer that took long is kept longer: asking must not become all that is done.
                self._at = trio.current_time() + (trio.current_time() - began)
            return self._value

    def forget(self) -> None:
        self._value = None


@dataclass(frozen=True, slots=True)
class Groups:
    """`listed`: all, by id. `behind`: the lag of those it was worked out of. `silent`: brokers that did not answer."""

    listed: Mapping[str, ListedGroup]
    behind: Mapping[str, GroupLag | Failed]
    silent: Mapping[int, Failed]

    def readers(self, topic: str) -> dict[str, int]:
        """The groups that have read this topic, or are assigned it: their lag in it."""
        found: dict[str, int] = {}
        for name, lag in self.behind.items():
            if isinstance(lag, GroupLag):
                rows = [each for each in lag.partitions if each.topic == topic]
                if rows:
                    found[name] = sum(each.lag or 0 for each in rows)
        return found

    def by_topic(self) -> dict[str, dict[str, int]]:
        """`readers` of each topic that has some."""
        found: dict[str, dict[str, int]] = {}
        for name, lag in self.behind.items():
            if isinstance(lag, GroupLag):
                for each in lag.partitions:
                    readers = found.setdefault(each.topic, {})
                    readers[name] = readers.get(name, 0) + (each.lag or 0)
        return found


class Desk:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.given = Given()
        self._topics = Kept(self._ask_topics, TOPICS_S)
        self._groups = Kept(self._ask_groups, GROUPS_S)
        self._sizes = Kept(self._ask_sizes, SIZES_S)
        self._lanes = [f"search-{number}" for number in range(LANES)]
        self._room = trio.Semaphore(LANES)
        self._tails = [f"tail-{number}" for number in range(TAILS)]

    async def topics(self) -> Mapping[str, TopicView]:
        """All topics that may be seen. Raises ClientError."""
        return await self._topics.get()

    async def groups(self) -> Groups:
        """Raises ClientError."""
        return await self._groups.get()

    async def groups_or_none(self) -> Groups | None:
        """For pages that are about something else: None where groups cannot be asked for."""
        try:
            return await self.groups()
        except ClientError:
            return None

    async def sizes(self) -> Mapping[TopicPartition, int]:
        """Bytes of each partition, all replicas together. Raises ClientError."""
        return await self._sizes.get()

    def changed(self) -> None:
        """Something was changed: what was told before no longer counts."""
        for each in (self._topics, self._groups, self._sizes):
            each.forget()

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[str]:
        """A lane for a search, for as long as it takes."""
        async with self._room:
            lane = self._lanes.pop()
            try:
                yield lane
            finally:
                self._lanes.append(lane)

    @property
    def has_tail(self) -> bool:
        return bool(self._tails)

    def take_tail(self) -> str | None:
        """A lane for a live tail, to be given back; None: all are taken."""
        return self._tails.pop() if self._tails else None

    def give_back(self, tail: str) -> None:
        self._tails.append(tail)

    async def _ask_topics(self) -> Mapping[str, TopicView]:
        return await list_topics(self.client)

    async def _ask_groups(self) -> Groups:
        listed, silent = await list_groups(self.client)
        wanted = [*listed][:GROUPS_MAX]
        return Groups(listed, await lags(self.client, wanted, times=False) if wanted else {}, silent)

    async def _ask_sizes(self) -> Mapping[TopicPartition, int]:
        return summed(await describe_log_dirs(self.client))


def summed(dirs: Mapping[int, list[LogDir] | Failed]) -> dict[TopicPartition, int]:
    """Bytes of each partition, of all replicas that were told of."""
    found: dict[TopicPartition, int] = {}
    for rows in dirs.values():
        for each in () if isinstance(rows, Failed) else rows:
            for place, replica in each.replicas.items():
                found[place] = found.get(place, 0) + replica.size
    return found
