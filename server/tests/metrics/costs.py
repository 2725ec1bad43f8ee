"""What metrics cost: microseconds of the loop's CPU for a request with and without a meter, and for a scrape.

    python -m barnabas.server.tests.metrics.costs

Requests: 64 connections over loopback TCP produce a record each; rounds without a meter, with one, and timed ones take
turns, so that other work on the machine falls on all of them. The mean of the fastest rounds counts. Scrapes: 2,000
partitions and 200 groups. Times are the thread's CPU time. Nothing here is a test.
"""

from __future__ import annotations

import gc
import socket
import struct
import time
from statistics import mean
from typing import Any

import trio

from barnabas.kproto.frame import request_frame
from barnabas.server.metrics.meter import Meter
from barnabas.server.metrics.page import TEXT
from barnabas.server.metrics.scrape import Scraper, rendered
from barnabas.server.runtime.turns import UNFINISHED, first_turn
from barnabas.server.tests.apis.groups.test_group_apis import Asker
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import dialled, measured_broker

CONNECTIONS = 64
ROUNDS = 450
FASTEST = 40
NEVER_NS = 1 << 62


async def of_requests(value_bytes: int) -> dict[str, float]:
    """Microseconds for a Produce of a record of that size, by what the meter does."""
    async with measured_broker(log_retention_ms="-1") as broker:
        await broker.services.topics.auto_create(["t"])
        reactor: Any = broker.parts.reactor
        meter = reactor.meter
        assert isinstance(meter, Meter)
        endpoint = broker.endpoints[0]
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(socket.create_connection((endpoint.host, endpoint.port)))
            serve(reactor)
        took: dict[str, list[float]] = {"without a meter": [], "with a meter": [], "timed": []}
        for number in range(ROUNDS):
            kind = list(took)[number % len(took)]
            reactor.meter = None if kind == "without a meter" else meter
            for link in reactor._links.values():
                link.connection._meter = reactor.meter
            meter.note = None
            meter._timed_again_ns = 0 if kind == "timed" else NEVER_NS
            frame = request_frame(9, number, "client", request(batch(bytes(value_bytes)), acks=-1))
            for client in clients:
                client.sendall(frame)
            took[kind].append(serve(reactor))
            for client in clients:
                (left,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
                client.recv(left, socket.MSG_WAITALL)
        reactor.meter = meter
        for client in clients:
            client.close()
        serve(reactor)
        return {kind: mean(sorted(times)[:FASTEST]) / CONNECTIONS * 1e6 for kind, times in took.items()}


def serve(reactor: Any) -> float:
    """Run the reactor until there is nothing to do; seconds of CPU."""
    begun = time.thread_time()
    while events := reactor._epoll.poll(0, 256):
        reactor._round(events, 0.0)
    return time.thread_time() - begun


async def of_scrapes() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        for number in range(100):
            await asker.topic(f"topic-{number}", 20)
            for index in range(20):
                await client.ask(request(batch(b"a", b"b"), topic=f"topic-{number}", index=index), 9)
        await asker.coordinator()
        for number in range(200):
            await asker.commit(dict.fromkeys(range(10), 0), topic=f"topic-{number % 100}", group=f"group-{number}")
        gc.collect()
        gc.freeze()
        assert broker._metrics is not None
        scraper = broker._metrics._scraper
        assert isinstance(scraper, Scraper)
        for _ in range(5):
            turns: list[float] = []
            page = in_turns(scraper.page(), turns)
            text = in_turns(rendered(page, TEXT), turns)
            size = sum(map(len, text))
            print(
                f"a scrape of {page.sample_count} lines, {size} bytes: {sum(turns) * 1e3:.1f} ms in {len(turns)} turns "
                f"of at most {max(turns) * 1e3:.1f} ms"
            )


def in_turns(steps: Any, turns: list[float]) -> Any:
    """Run steps to their end, and note what each turn took."""
    while True:
        begun = time.thread_time()
        value = first_turn(steps)
        turns.append(time.thread_time() - begun)
        if value is not UNFINISHED:
            return value


def main() -> None:
    for value_bytes in (100, 16_000):
        for kind, us in trio.run(of_requests, value_bytes).items():
            print(f"{us:7.2f} us  a Produce of {value_bytes} bytes, {kind}")
    trio.run(of_scrapes)


if __name__ == "__main__":
    main()
