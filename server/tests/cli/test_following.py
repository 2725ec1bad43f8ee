"""`barnabas consume --follow`: brokers that are away for a while, and a reader of its output that goes; `produce` where
it may not. With a broker in this process, under virtual time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.replication import Endpoint
from barnabas.server.broker.broker import Broker
from barnabas.server.cli import main as cli
from barnabas.server.cli.client.consume import consume
from barnabas.server.cli.client.produce import produce
from barnabas.server.cli.output_reader import until_unread, while_read
from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.failures import Refused, Rejected
from barnabas.server.client.producer import Producer
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.network.peers import PeerRefused
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.client.rig import Exchange, passed_on, relayed, to_broker


class Way:
    """To a broker, and not while `is_down`."""

    def __init__(self, broker: Broker) -> None:
        self._connect = to_broker(broker)
        self.is_down = False

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        if self.is_down:
            raise ConnectionRefusedError(111, "connection refused")
        return await self._connect(endpoint)

    async def hook(self, exchange: Exchange) -> bytes | None:
        return None if self.is_down else await passed_on(exchange)


@asynccontextmanager
async def place() -> AsyncIterator[tuple[Way, Client, Client]]:
    """With topic t: the way, a client on it, and another one that always comes through."""
    async with embedded_broker() as broker:
        way = Way(broker)
        async with (
            relayed(way.connect, way.hook) as (client, _),
            open_client(["any:1"], connect=to_broker(broker)) as other,
        ):
            await create_topics(other, [NewTopic("t", 1, 1)])
            yield way, client, other


async def send(client: Client, value: bytes) -> None:
    await Producer(client, lambda: 1_750_000_000_000).send([ToSend("t", value)])


async def test_who_follows_waits_for_the_broker(autojump_clock: MockClock, capfdbinary: Any) -> None:
    chosen = cli.parser().parse_args(["consume", "t", "-f", "-n", "3", "--from", "earliest"])
    async with place() as (way, client, other), trio.open_nursery() as nursery:
        ended: list[int] = []

        @nursery.start_soon
        async def follow() -> None:
            ended.append(await consume(chosen, client))

        await send(other, b"a")
        await trio.sleep(5)
        assert capfdbinary.readouterr() == (b"a\n", b"")
        for value in (b"b", b"c"):
            way.is_down = True
            await trio.sleep(300)
            assert capfdbinary.readouterr() == (
                b"",
                b"any:1 does not answer, waiting (cannot connect to any:1: connection refused)\n",
            )
            await send(other, value)
            way.is_down = False
            await trio.sleep(20)
            assert capfdbinary.readouterr() == (value + b"\n", b"any:1 answers again\n")
        assert ended == [0]


async def test_a_short_time_without_broker_is_not_worth_a_word(autojump_clock: MockClock, capfdbinary: Any) -> None:
    chosen = cli.parser().parse_args(["consume", "t", "-f", "-n", "1", "--from", "earliest"])
    async with place() as (way, client, other), trio.open_nursery() as nursery:
        nursery.start_soon(consume, chosen, client)
        await trio.sleep(5)
        way.is_down = True
        await trio.sleep(5)
        way.is_down = False
        await send(other, b"a")
    assert capfdbinary.readouterr() == (b"a\n", b"")


# -- who reads the output ----------------------------------------------------------------------------------------------


async def test_a_pipe_whose_reader_goes(autojump_clock: MockClock) -> None:
    reader, writer = os.pipe()
    try:
        with trio.move_on_after(60) as waited:
            await until_unread(writer)
        assert waited.cancelled_caught
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            await while_read(trio.sleep_forever, writer)
    finally:
        os.close(writer)


async def test_a_socket_whose_reader_goes(autojump_clock: MockClock) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        await until_unread(ours.fileno())


async def test_what_work_gives_and_raises(autojump_clock: MockClock) -> None:
    async def work() -> int:
        await trio.sleep(10)
        return 7

    async def fail() -> int:
        await trio.sleep(10)
        raise Refused(ErrorCode.INVALID_REQUEST, "no")

    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        assert await while_read(work, nowhere) == 7
        with pytest.raises(Refused, match="no"):
            await while_read(fail, nowhere)
    finally:
        os.close(nowhere)


# -- produce -----------------------------------------------------------------------------------------------------------


async def test_what_was_sent_before_the_broker_went_is_said(
    autojump_clock: MockClock, capfdbinary: Any, tmp_path: Path
) -> None:
    (first := tmp_path / "first").write_bytes(b"1")
    (second := tmp_path / "second").write_bytes(b"2")

    async def hook(exchange: Exchange) -> bytes | None:
        answer = await way.hook(exchange)
        way.is_down = way.is_down or exchange.key is ApiKey.PRODUCE
        return answer

    async with embedded_broker() as broker:
        way = Way(broker)
        async with relayed(way.connect, hook) as (client, _):
            await create_topics(client, [NewTopic("t", 1, 1)])
            chosen = cli.parser().parse_args(["produce", "t", "--file", str(first), "--file", str(second)])
            assert await produce(chosen, client) == 1
    assert capfdbinary.readouterr().err.decode() == (
        "barnabas: cannot connect to any:1: connection refused\n"
        f"before that 1 record went to t; whether {second} went is not known\n"
    )


# -- access ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "access to the topic is denied (TOPIC_AUTHORIZATION_FAILED)"),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "there is no such topic, or it may not be seen (UNKNOWN_TOPIC_OR_PARTITION); "
            "`barnabas topic create t` makes it",
        ),
    ],
)
async def test_who_may_not_write_is_not_told_to_make_the_topic(
    autojump_clock: MockClock, capfdbinary: Any, code: ErrorCode, said: str
) -> None:
    async def hook(exchange: Exchange) -> bytes | None:
        if exchange.key is not ApiKey.METADATA:
            return await passed_on(exchange)
        answer = await exchange.answer()
        for row in answer.topics:
            row.error_code, row.partitions = code, []
        return exchange.framed(answer)

    async with embedded_broker() as broker, relayed(to_broker(broker), hook) as (client, _):
        assert await produce(cli.parser().parse_args(["produce", "t"]), client) == 1
    assert capfdbinary.readouterr().err.decode() == f"barnabas: topic t: {said}\n"


async def test_waiting_for_a_broker_that_rejects_the_log_in_is_in_vain(autojump_clock: MockClock) -> None:
    """It would try again and again, until the account is locked."""
    chosen = cli.parser().parse_args(["consume", "t", "-f", "--from", "earliest"])

    async def rejected(endpoint: Endpoint) -> trio.abc.Stream:
        raise PeerRefused("any:1: it rejects the log-in of alice: Authentication failed")

    async with place() as (way, client, _), trio.open_nursery() as nursery:
        ended = trio.Event()

        @nursery.start_soon
        async def follow() -> None:
            with pytest.raises(Rejected, match="rejects the log-in of alice"):
                await consume(chosen, client)
            ended.set()

        await trio.sleep(5)
        way.is_down, way._connect = True, rejected
        await trio.sleep(1)
        way.is_down = False
        with trio.fail_after(120):
            await ended.wait()
