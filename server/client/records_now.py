"""All records that a topic has now, for synchronous callers: a test that looks at what was written.

The client needs trio; it runs in a thread of its own, so that the caller may be in any loop, or in none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import trio

from barnabas.kproto import ErrorCode
from barnabas.server.client.approach import Approach
from barnabas.server.client.client import TopicPartition, open_client, raise_failed
from barnabas.server.client.failures import ClientError, Refused
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.reader import Reader, read_all
from barnabas.server.client.reading import Read
from barnabas.server.client.topics import describe_topics, list_topics

T = TypeVar("T")

__all__ = ["Approach", "ClientError", "Read", "records_now", "topics_now"]


def records_now(
    bootstrap: Sequence[str],
    topic: str,
    partitions: Collection[int] | None = None,
    *,
    committed: bool = False,
    approach: Approach | None = None,
    client_id: str = "barnabas",
    timeout_s: float = 10.0,
) -> list[Read]:
    """The records of a topic, by partition and offset; partitions: None for all. committed: without those of aborted
    and open transactions. Raises ClientError.
    """

    async def read() -> list[Read]:
        async with open_client(bootstrap, approach=approach, client_id=client_id, timeout_s=timeout_s) as client:
            view = raise_failed(f"topic {topic}", (await describe_topics(client, [topic]))[topic])
            for index in partitions or ():
                if index not in view.partitions:
                    count = len(view.partitions)
                    raise Refused(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has {count} partitions, and not {index}"
                    )
            wanted = [(topic, index) for index in sorted(view.partitions if partitions is None else set(partitions))]
            found = await spans(client, wanted, committed=committed)
            there: dict[TopicPartition, Span] = {each: raise_failed(_name(each), span) for each, span in found.items()}
            starts = {each: span.start for each, span in there.items()}
            stops = {each: span.end for each, span in there.items()}
            reader = Reader(client, starts, stops, committed=committed)
            records = await read_all(reader)
            for each, failed in reader.failed.items():
                raise_failed(_name(each), failed)
            return sorted(records, key=lambda record: (record.partition, record.offset))

    return _in_thread(read)


def topics_now(
    bootstrap: Sequence[str],
    *,
    approach: Approach | None = None,
    client_id: str = "barnabas",
    timeout_s: float = 10.0,
) -> list[str]:
    """The names of all topics but Kafka's internal ones. Raises ClientError."""

    async def ask() -> list[str]:
        async with open_client(bootstrap, approach=approach, client_id=client_id, timeout_s=timeout_s) as client:
            return [name for name, view in (await list_topics(client)).items() if not view.is_internal]

    return _in_thread(ask)


def _in_thread(run: Callable[[], Awaitable[T]]) -> T:
    with ThreadPoolExecutor(1, "barnabas") as thread:
        return thread.submit(trio.run, run).result()


def _name(each: TopicPartition) -> str:
    topic, index = each
    return f"{topic}-{index}"
