"""Records of several partitions over Fetch 4-12, from their leaders, in rounds; each round is bounded.

`Reader.read` makes one round: a Fetch to each leader, on a lane of its own. A partition whose leader cannot be asked
is tried again in each round, and failed when that lasts longer than the client's patience; a `patient` reader gives up
none for that, only says which they are. A position that is no longer in the log moves to the log's start, and `skipped`
says so.

Not done: fetch sessions (KIP-227), reading from followers (KIP-392), consumer groups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import FetchRequest
from barnabas.server.client.client import Client, Job, TopicPartition
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.offsets import CONSUMER, EARLIEST, Span, by_topic, list_offsets
from barnabas.server.client.reading import Backward, Cursor, Read
from barnabas.server.client.retrying import Verdict, verdict

LANE: Final = "fetch"
ROUND_BYTES_MAX: Final = 8 * 1024 * 1024
ROUND_RECORDS_MAX: Final = 50_000
PARTITION_BYTES_MAX: Final = 1024 * 1024
FIRST_BYTES_MAX: Final = 16 * 1024
ROUND_S: Final = 2.0
"""How long a round waits for brokers in trouble, while others have answered."""
SEARCH_BYTES_MAX: Final = 64 * 1024 * 1024


class Reader:
    """See the module. start: where to begin, by partition; stop: the first offset that is not wanted (absent: read on).
    committed: without aborted transactions, up to the last stable offset. each_max: records wanted of each partition.
    lane: the connection to each broker, on which other readers of that lane wait meanwhile. patient: without end; a
    topic is gone when brokers have said so for as long as the client's patience.
    """

    def __init__(
        self,
        client: Client,
        start: Mapping[TopicPartition, int],
        stop: Mapping[TopicPartition, int] | None = None,
        *,
        committed: bool = False,
        each_max: int | None = None,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
        max_wait_ms: int = 500,
        lane: str = LANE,
        patient: bool = False,
    ) -> None:
        self._client = client
        self._patient = patient
        self._lane = lane
        self._committed = committed
        self.partition_bytes_max = partition_bytes_max
        """Of one partition in one answer; what comes first in it may be longer."""
        self._max_wait_ms = min(max_wait_ms, client.broker_ms)
        self._cursors = {
            partition: Cursor(
                *partition, offset, (stop or {}).get(partition), committed=committed, records_max=each_max
            )
            for partition, offset in start.items()
        }
        self._round = 0
        self._troubled: dict[TopicPartition, tuple[float, Failed]] = {}
        self._gone: dict[TopicPartition, float] = {}
        self.skipped: dict[TopicPartition, Span] = {}
        """Offsets that were wanted, and are no longer in the log."""

    @property
    def is_done(self) -> bool:
        return all(cursor.is_done for cursor in self._cursors.values())

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {partition: cursor.offset for partition, cursor in self._cursors.items()}

    @property
    def failed(self) -> dict[TopicPartition, Failed]:
        """Partitions that are read no further, and why."""
        return {partition: cursor.failed for partition, cursor in self._cursors.items() if cursor.failed is not None}

    @property
    def troubled(self) -> dict[TopicPartition, Failed]:
        """Partitions that could not be read for longer than the client's patience, and are tried on."""
        until = trio.current_time() - self._client.timeout_s
        return {partition: failed for partition, (since, failed) in self._troubled.items() if since <= until}

    async def read(self, records_max: int = ROUND_RECORDS_MAX) -> list[Read]:
        """The records of one round, in order of offset per partition; none: nothing came within `max_wait_ms`. Raises
        ClientError.
        """
        wanted = [partition for partition, cursor in self._cursors.items() if not cursor.is_done]
        if not wanted:
            return []
        turn = self._round % len(wanted)
        self._round += 1
        wanted = wanted[turn:] + wanted[:turn]  # answers are bounded: each partition comes first at some time
        firsts: set[TopicPartition] = set()
        is_behind = any(self._cursors[partition].has_more for partition in wanted)
        job = Job(ApiKey.FETCH, self._maker(0 if is_behind else self._max_wait_ms, firsts), _read)
        answers = await self._client.by_leader(
            wanted, job, lane=self._lane, timeout_s=ROUND_S + self._max_wait_ms / 1000
        )
        found: list[Read] = []
        lost: list[TopicPartition] = []
        for partition in wanted:
            cursor, answer = self._cursors[partition], answers[partition]
            if not isinstance(answer, Failed):
                self._troubled.pop(partition, None)
                self._gone.pop(partition, None)
                found += cursor.feed(answer, records_max - len(found), was_first=partition in firsts)
            elif answer.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._gone.pop(partition, None)
                lost.append(partition)
            else:
                self._in_trouble(cursor, partition, answer)
        try:
            if lost:
                await self._move_to_start(lost)
            if self._gone and not self.is_done:
                if not found:
                    await trio.sleep(self._max_wait_ms / 1000)
                await self._client.refresh({topic for topic, _ in self._gone})  # nobody else asks for them
        except ClientError:
            if not found:  # what was found is not found again; the next round asks anew
                raise
        return found

    def _maker(self, max_wait_ms: int, firsts: set[TopicPartition]) -> Callable[[list[TopicPartition], int], Any]:
        def make(items: list[TopicPartition], version: int) -> FetchRequest:
            firsts.difference_update(items)
            firsts.add(items[0])
            fields: dict[str, Any] = {"session_id": 0, "session_epoch": -1} if version >= 7 else {}
            return FetchRequest(
                replica_id=CONSUMER,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=ROUND_BYTES_MAX,
                isolation_level=int(self._committed),
                topics=[
                    FetchRequest.FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchRequest.FetchPartition(
                                partition=index,
                                fetch_offset=self._cursors[topic, index].offset,
                                partition_max_bytes=self.partition_bytes_max,
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(items).items()
                ],
                **fields,
            )

        return make

    def _in_trouble(self, cursor: Cursor, partition: TopicPartition, failed: Failed) -> None:
        now = trio.current_time()
        since, _ = self._troubled.get(partition, (now - ROUND_S, failed))
        self._troubled[partition] = since, failed
        if verdict(failed.code) is Verdict.FINAL or self._is_over(partition, now, since):
            del self._troubled[partition]
            self._gone.pop(partition, None)
            cursor.failed = failed

    def _is_over(self, partition: TopicPartition, now: float, since: float) -> bool:
        is_gone = _is_gone(self._client.leader_of(partition))
        if not self._patient:
            return is_gone or now - since >= self._client.timeout_s
        if not is_gone:  # a broker that has just begun may not know its topics yet
            self._gone.pop(partition, None)
            return False
        return now - self._gone.setdefault(partition, now) >= self._client.timeout_s

    async def _move_to_start(self, lost: Iterable[TopicPartition]) -> None:
        for partition, earliest in (await list_offsets(self._client, dict.fromkeys(lost, EARLIEST))).items():
            cursor = self._cursors[partition]
            if isinstance(earliest, Failed):
                self._in_trouble(cursor, partition, earliest)
            elif earliest.offset > cursor.offset:
                self._troubled.pop(partition, None)
                self.skipped[partition] = Span(cursor.offset, earliest.offset)
                cursor.offset = earliest.offset
            else:
                self._troubled.pop(partition, None)
                cursor.failed = Failed(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {cursor.offset} is behind the end of the log"
                )


def _is_gone(leader: int | Failed | None) -> bool:
    return isinstance(leader, Failed)


def _read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Any]]:
    if answer.error_code:
        for item in items:
            yield item, Failed.of(answer.error_code)
        return
    for topic in answer.responses:
        for row in topic.partitions:
            yield (topic.topic, row.partition_index), Failed.of(row.error_code) if row.error_code else row


async def read_all(reader: Reader) -> list[Read]:
    """All records up to the reader's stops, or its `each_max`: for few."""
    found: list[Read] = []
    while not reader.is_done:
        found += await reader.read()
    return found


async def newest(
    client: Client,
    spans: Mapping[TopicPartition, Span],
    count: int,
    *,
    wanted: Callable[[Read], bool] | None = None,
    committed: bool = False,
    bytes_max: int = SEARCH_BYTES_MAX,
    lane: str = LANE,
    prepare: Callable[[Sequence[Read]], Awaitable[None]] | None = None,
) -> tuple[Backward, dict[TopicPartition, Failed]]:
    """The newest `count` records of these partitions together, and what failed. wanted(record): whether it counts; the
    search goes back until enough are found or `bytes_max` bytes were read. What turns out to be too much at once is
    read again in smaller parts, so it may be some times that. prepare(records): called with what was read before
    `wanted` is.
    """
    search = Backward(spans, count, wanted=wanted, bytes_max=bytes_max)
    failed: dict[TopicPartition, Failed] = {}
    while windows := {partition: span for partition, span in search.windows().items() if partition not in failed}:
        starts = {partition: span.start for partition, span in windows.items()}
        stops = {partition: span.end for partition, span in windows.items()}
        reader = Reader(client, starts, stops, committed=committed, lane=lane)
        found: list[Read] = []
        size = records = 0
        while not reader.is_done:
            read = await reader.read()
            if prepare is not None:
                await prepare(read)
            for record in read:
                records += 1
                size += record.size
                if search.is_wanted(record):
                    found.append(record)
            if search.shrink(windows, records, size):
                break
        else:
            search.found(windows, found, size, records)
        failed |= reader.failed
    return search, failed


async def first_of_each(
    client: Client, start: Mapping[TopicPartition, int], stop: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Read | Failed | None]:
    """The first record of each partition from an offset on; None: there is none before `stop`."""
    reader = Reader(client, start, stop, each_max=1, partition_bytes_max=FIRST_BYTES_MAX, max_wait_ms=0)
    found: dict[TopicPartition, Read | Failed | None] = dict.fromkeys(start)
    while not reader.is_done:
        for record in await reader.read():
            found[record.topic, record.partition] = record
        # Mostly a first batch is small, and all come at once. What is left has larger ones.
        reader.partition_bytes_max = min(reader.partition_bytes_max * 4, PARTITION_BYTES_MAX)
    return found | reader.failed
