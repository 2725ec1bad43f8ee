"""What is written to topics, by two looks at their partitions: records a second by log end offsets, bytes a second by
sizes on disk.

Brokers do not tell rates to clients. A page that shows a topic is a look, and asks for more: for `FOLLOWED_MS` its
partitions are looked at with each sample of lag, `FOLLOWED_MAX` of them at most, so that who looks again sees a rate.
The lag of groups brings looks along that cost nothing. A rate is from the first look within `WINDOW_MS` to the last
one, and it is said over how long that was.

Bytes are those of all replicas, and what retention and compaction delete counts against them: how fast a disk fills.
Offsets that go back are another topic of the same name: what was seen of the old one is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import LATEST, Offset, list_offsets
from barnabas.server.console.desk import summed

WINDOW_MS: Final = 60_000
APART_MS: Final = 1_000
"""Two looks that are nearer say nothing: one of them is left out."""
FOLLOWED_MS: Final = 600_000
FOLLOWED_MAX: Final = 2_000
KEPT_MAX: Final = 20_000
"""Partitions of which looks are kept; those that were looked at longest ago go first."""


class Look(NamedTuple):
    """`time_ms`: when. `number`: an end offset, or bytes."""

    time_ms: int
    number: int


class Rate(NamedTuple):
    """`per_s`: of all partitions together. `seconds`: over how long, the shortest of them."""

    per_s: float
    seconds: float


class Rates:
    """See the module."""

    def __init__(self) -> None:
        self._ends: OrderedDict[TopicPartition, deque[Look]] = OrderedDict()
        self._sizes: OrderedDict[TopicPartition, deque[Look]] = OrderedDict()
        self._followed: OrderedDict[TopicPartition, int] = OrderedDict()

    def look(
        self, now_ms: int, ends: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """What was seen now. sizes None: they were not to be had."""
        for place, end in ends.items():
            looks = self._ends.get(place)
            if looks and end < looks[-1].number:
                del self._ends[place]
                self._sizes.pop(place, None)
            _add(self._ends, place, Look(now_ms, end))
        for place, size in (sizes or {}).items():
            _add(self._sizes, place, Look(now_ms, size))

    def want(self, now_ms: int, places: Iterable[TopicPartition]) -> None:
        """Have these looked at for a while."""
        for place in places:
            self._followed[place] = now_ms
            self._followed.move_to_end(place)
        while len(self._followed) > FOLLOWED_MAX:
            self._followed.popitem(last=False)

    def records(self, now_ms: int, places: Iterable[TopicPartition]) -> Rate | None:
        """Records a second; None: there were no two looks at each of them."""
        return _rate(self._ends, now_ms, places)

    def bytes(self, now_ms: int, places: Iterable[TopicPartition]) -> Rate | None:
        """Bytes a second, negative where more is deleted."""
        return _rate(self._sizes, now_ms, places)

    async def follow(self, client: Client, now_ms: Callable[[], int]) -> None:
        """Look at what pages want. Raises ClientError."""
        for place, at in list(self._followed.items()):
            if at >= now_ms() - FOLLOWED_MS:
                break  # they are in the order in which they were wanted
            del self._followed[place]
        places = list(self._followed)
        if not places:
            return
        await client.refresh({topic for topic, _ in places})
        led = [place for place in places if isinstance(client.leader_of(place), int)]
        for place in places:
            if isinstance(client.leader_of(place), Failed):
                self._followed.pop(place, None)  # it was deleted
        found = await list_offsets(client, dict.fromkeys(led, LATEST)) if led else {}
        try:
            sizes = summed(await describe_log_dirs(client, led)) if led else {}
        except ClientError:
            sizes = {}  # not allowed, or a broker that is too old
        ends = {place: each.offset for place, each in found.items() if isinstance(each, Offset)}
        self.look(now_ms(), ends, sizes)


def _add(kept: OrderedDict[TopicPartition, deque[Look]], place: TopicPartition, look: Look) -> None:
    looks = kept.get(place)
    if looks is None:
        looks = kept[place] = deque()
    kept.move_to_end(place)
    if len(looks) > 1 and look.time_ms - looks[-2].time_ms < APART_MS:
        looks.pop()
    looks.append(look)
    while len(looks) > 2 and looks[1].time_ms <= look.time_ms - WINDOW_MS:
        looks.popleft()
    while len(kept) > KEPT_MAX:
        kept.popitem(last=False)


def _rate(kept: Mapping[TopicPartition, deque[Look]], now_ms: int, places: Iterable[TopicPartition]) -> Rate | None:
    per_s, shortest = 0.0, None
    for place in places:
        looks = kept.get(place)
        if looks is None:
            return None
        first, last = looks[0], looks[-1]
        ms = last.time_ms - first.time_ms
        if ms < APART_MS or now_ms - last.time_ms > WINDOW_MS:
            return None
        per_s += (last.number - first.number) * 1000 / ms
        shortest = ms if shortest is None else min(shortest, ms)
    return None if shortest is None else Rate(per_s, shortest / 1000)
