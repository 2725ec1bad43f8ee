"""Where logs end that others lead: what is left of the connections when the broker stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from barnabas.replication import BrokerImage, Endpoint, Image, PartitionImage, TopicImage
from barnabas.server.cluster.log_ends import LogEnds

IMAGE = Image(
    brokers={each: BrokerImage(each, (Endpoint("PLAINTEXT", f"broker{each}", 9092, "PLAINTEXT"),)) for each in (1, 2)},
    topics={"t": TopicImage("t", bytes(16), tuple(PartitionImage(i, i + 1, 0, 0, (1, 2), (1, 2)) for i in (0, 1)))},
)


class Silent(trio.abc.Stream):
    """To a broker that never answers. It takes a while to be closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()
        return b""

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)
        self.is_closed = True


async def test_who_asks_while_the_broker_stops(autojump_clock: MockClock) -> None:
    opened: list[Silent] = []

    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        opened.append(Silent())
        return opened[-1]

    config: Any = SimpleNamespace(broker_id=0, inter_broker_listener="PLAINTEXT")
    ends = LogEnds(connect, lambda: config, lambda: IMAGE, "test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.ask, [("t", 0)], 10.0)
        await trio.sleep(1)
        nursery.start_soon(ends.close)
        await trio.sleep(0.05)
        nursery.start_soon(ends.ask, [("t", 1)], 1.0)
    assert [each.is_closed for each in opened] == [True, True]
