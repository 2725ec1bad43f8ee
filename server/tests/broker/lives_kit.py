"""A broker with lives in this loop, what clients do to it, and what is in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from barnabas.kproto import ErrorCode as E
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.broker.lives import Lives
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.groups.committed import committed_offsets
from barnabas.server.client.groups.groups import describe_groups, list_groups
from barnabas.server.client.transactions import describe_transactions, list_transactions
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.offload import Offload, in_thread
from barnabas.server.runtime.virtual_clock import VirtualClock
from barnabas.server.testing import TEST_SETTINGS, connected


@asynccontextmanager
async def living(
    directory: Path, clock: VirtualClock, *, offload: Offload = in_thread, **settings: str
) -> AsyncIterator[Lives]:
    """A broker that serves, over TCP too. Settings with `_` for `.`."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    config = BrokerConfig.from_values({**TEST_SETTINGS, "log.dirs": str(directory), **given})
    lives = Lives(config, clock, offload)
    async with trio.open_nursery() as nursery:
        await nursery.start(lives.run)
        yield lives
        await lives.stop()


@asynccontextmanager
async def client_of(lives: Lives) -> AsyncIterator[Client]:
    async with open_client([lives.bootstrap], timeout_s=120) as client:
        yield client


AGAIN = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS)


async def ask(lives: Lives, request: Any, version: int) -> Any:
    """One request over a connection of its own; again while a coordinator is loading, or has something to finish."""
    while True:
        async with connected(lives.broker) as client:
            answer = await client.ask(request, version)
        if getattr(answer, "error_code", 0) not in AGAIN:
            return answer
        await trio.sleep(0.01)


async def coordinated(lives: Lives, key: str, key_type: int) -> None:
    """Wait until there is a coordinator: the first look makes its topic."""
    await ask(lives, FindCoordinatorRequest(key=key, key_type=key_type), 3)


async def produce(
    lives: Lives,
    topic: str,
    values: Sequence[bytes],
    index: int = 0,
    *,
    keyed: bool = False,
    transactional_id: str | None = None,
    **batch: Any,
) -> int:
    """Write a batch, with the broker's time; its base offset."""
    now_ms = lives.now_ms()
    records = [Record(each, now_ms, value if keyed else None, value, []) for each, value in enumerate(values)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=build_batch(records, **batch))
                ],
            )
        ],
    )
    found = (await ask(lives, request, 9)).responses[0].partition_responses[0]
    assert found.error_code == 0, found
    return int(found.base_offset)


class Transactional:
    """A transactional producer."""

    def __init__(self, lives: Lives, name: str, timeout_ms: int = 600_000) -> None:
        self._lives = lives
        self.name = name
        self._timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    async def begin(self) -> None:
        await coordinated(self._lives, self.name, 1)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        answer = await ask(self._lives, request, 4)
        assert answer.error_code == 0, answer
        self.id, self.epoch, self._sequences = answer.producer_id, answer.producer_epoch, {}

    async def write(self, topic: str, index: int, values: Sequence[bytes]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        while True:
            answer = await ask(self._lives, request, 3)
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code not in AGAIN:
                break
            await trio.sleep(0.01)
        assert code == 0, answer
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(values)
        await produce(
            self._lives,
            topic,
            values,
            index,
            keyed=True,
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def end(self, *, commit: bool) -> int:
        """The error code."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        return int((await ask(self._lives, request, 3)).error_code)


async def join(lives: Lives, group: str, session_timeout_ms: int = 10_000) -> str:
    """Become the one member of a classic group; its id."""

    def request(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )

    await coordinated(lives, group, 0)
    async with connected(lives.broker) as client:
        answer = await client.ask(request(""), 5)
        while answer.error_code in (*AGAIN, E.MEMBER_ID_REQUIRED):
            await trio.sleep(0.01)
            answer = await client.ask(request(answer.member_id), 5)
        assert answer.error_code == 0, answer
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=answer.member_id, assignment=b"\0\0\0\0\0\0\0\0\0\0"
                )
            ],
        )
        synced = await client.ask(sync, 3)
        assert synced.error_code == 0, synced
        return str(answer.member_id)


# -- what is in it -----------------------------------------------------------------------------------------------------


def bytes_of(partition: Partition) -> bytes:
    """All bytes of a partition's log, from its files."""
    files = sorted(Path(partition.log.directory).glob("*.log"))
    found = b"".join(file.read_bytes() for file in files)
    assert len(found) == partition.log.size
    return found


def logs_of(lives: Lives) -> dict[str, dict[str, Any]]:
    """What each partition has."""
    return {
        f"{each.topic}-{each.index}": {
            "topic id": each.log.topic_id,
            "start": each.log.log_start_offset,
            "end": each.log.log_end_offset,
            "high watermark": each.high_watermark,
            "stable": each.log.last_stable_offset(each.high_watermark),
            "segments": each.log.segment_bases,
            "bytes": bytes_of(each),
            "producers": each.log.producers.encode(),
            "settings": each.log.config,
        }
        for each in lives.services.partitions
    }


async def groups_of(client: Client) -> dict[str, Any]:
    """What coordinators know."""
    names = (await list_groups(client))[0]
    transactions = (await list_transactions(client))[0]
    described = await describe_transactions(client, transactions)
    return {
        "groups": await describe_groups(client, names),
        "offsets": await committed_offsets(client, names),
        "transactions": described,
    }


def topics_of(lives: Lives) -> dict[str, Any]:
    """What the cluster's image says, but for epochs."""
    return {
        name: (topic.topic_id, dict(topic.config), [(each.index, each.replicas) for each in topic.partitions])
        for name, topic in lives.services.image.topics.items()
    }
