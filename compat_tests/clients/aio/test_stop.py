"""How an aiokafka consumer is stopped whose own `stop` takes one of its tasks' cancellation for its caller's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from compat_tests.clients.aio.adapter import stop


class Connections:
    """Stands for the consumer's client."""

    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Consumer:
    """Cancels a task that waits and awaits it, as aiokafka's fetcher does before it tries a fetch again."""

    def __init__(self) -> None:
        self._client = Connections()
        self.stopping = asyncio.Event()

    async def stop(self) -> None:
        self.stopping.set()
        waiting = asyncio.create_task(self.waits())
        await asyncio.sleep(0)
        waiting.cancel()
        await waiting

    async def waits(self) -> None:
        await asyncio.Event().wait()


class Hanging(Consumer):
    """Never ends."""

    async def stop(self) -> None:
        self.stopping.set()
        await self.waits()


def test_its_connections_are_closed() -> None:
    async def body() -> Any:
        consumer = Consumer()
        await stop(consumer)  # type: ignore[arg-type]
        return consumer

    assert asyncio.run(body())._client.closed


def test_who_is_cancelled_learns_of_it() -> None:
    async def body() -> bool:
        consumer = Hanging()
        caller = asyncio.create_task(stop(consumer))  # type: ignore[arg-type]
        await consumer.stopping.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        return consumer._client.closed

    assert not asyncio.run(body())
