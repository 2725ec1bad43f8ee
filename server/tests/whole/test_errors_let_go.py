"""What an error was about goes with it: no cycle of frames keeps a request in memory until the collector comes by."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest
import trio

from barnabas.kproto import DecodeError, KafkaError
from barnabas.kproto.messages import CreatePartitionsRequest, CreateTopicsRequest, ProduceRequest
from barnabas.server.runtime.offload import in_thread
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import topic


class Large:
    """Something that a request brought."""


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def refuse(large: Large) -> None:
    raise DecodeError("that is no message")


async def test_an_error_of_a_thread_keeps_nothing_alive() -> None:
    async def work(large: Large) -> None:
        with suppress(DecodeError):
            await in_thread(refuse, large)

    large = Large()
    gone = ref(large)
    await work(large)
    del large
    await in_thread(int)  # by the same worker, which has let go of what it did before
    assert gone() is None


async def test_a_traceback_from_a_thread_is_kept() -> None:
    with pytest.raises(DecodeError) as raised:
        await in_thread(refuse, Large())
    assert raised.traceback[-1].name == "refuse"


def kept_errors() -> list[KafkaError]:
    """Errors that are referred to only by themselves."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [one for one in gc.garbage if isinstance(one, KafkaError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def refused_topics() -> CreateTopicsRequest:
    asked = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[asked], timeout_ms=1000)


def refused_partitions() -> CreatePartitionsRequest:
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=1, assignments=None)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=1000)


def refused_records() -> ProduceRequest:
    asked = ProduceRequest.PartitionProduceData(index=0, records=b"\0" * 11 + b"\x58" + b"\1" * 88)
    to = ProduceRequest.TopicProduceData(name="t", partition_data=[asked])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[to])


@pytest.mark.parametrize(
    ("request_of", "version"),
    [(refused_topics, 5), (refused_partitions, 3), (refused_records, 1), (refused_records, 9)],
)
async def test_what_is_refused_leaves_no_cycle(request_of: Any, version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        await client.ask(request_of(), version)
        kept_errors()
        await client.ask(request_of(), version)
        assert kept_errors() == []
