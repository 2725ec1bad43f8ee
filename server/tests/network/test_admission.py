"""The door of a broker: limits that are set, changed and lifted while clients come over real sockets, and the time that
a peer has to say who it is. Time is virtual.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.messages import IncrementalAlterConfigsRequest
from barnabas.server.broker.broker import Broker
from barnabas.server.network import addresses
from barnabas.server.network.addresses import HostLimits
from barnabas.server.network.connection import LOGIN_S
from barnabas.server.runtime.log_throttle import LOG_INTERVAL_S
from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.network.sasl_rig import handshake, log_in, sasl_broker
from barnabas.server.tests.network.tcp_rig import (
    HEADERS,
    SECONDS,
    closed_by_broker,
    dialled,
    fine,
    moved_by_hand,
    no_error_is_logged,
    reactor,
    sockets,
    until,
)

__all__ = ["no_error_is_logged", "sockets"]

TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter_broker_listener_name": "BROKERS",
}


@asynccontextmanager
async def at(broker: Broker, listener: str) -> AsyncIterator[Client]:
    """A client of the listener that is called so."""
    (port,) = [endpoint.port for endpoint in broker.endpoints if endpoint.listener == listener]
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Client(stream)


async def alter(broker: Broker, key: str, value: str, broker_id: str = "") -> int:
    """Set a setting of all brokers, or of one; the error code."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name=broker_id,
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)],
    )
    async with connected(broker) as admin:
        answer = await admin.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    code: int = answer.responses[0].error_code
    return code


def listeners(broker: Broker) -> list[str]:
    return sorted(connection.listener for connection in reactor(broker).connections)


async def settled() -> None:
    for _ in range(50):
        await trio.lowlevel.checkpoint()


# -- how many ---------------------------------------------------------------------------------------------------------


async def test_a_broker_is_admitted_and_the_connection_idle_for_longest_closed(mock_clock: MockClock) -> None:
    async with (
        embedded_broker(max_connections="2", **TWO) as broker,
        moved_by_hand(mock_clock),
        at(broker, "CLIENTS") as one,
        at(broker, "CLIENTS") as two,
    ):
        for client in (two, one):
            await fine(client)
            mock_clock.jump(1)
        async with at(broker, "CLIENTS") as third, at(broker, "BROKERS") as other:
            await fine(other)
            assert await closed_by_broker(two)
            await settled()
            assert listeners(broker) == ["BROKERS", "CLIENTS"]
            await fine(one)
            await other.stream.aclose()
            await fine(third)


async def test_a_listener_has_a_limit_of_its_own() -> None:
    async with embedded_broker(**TWO, listener_name_clients_max_connections="1") as broker:
        with trio.fail_after(SECONDS):
            async with at(broker, "CLIENTS") as one, at(broker, "CLIENTS") as two, at(broker, "BROKERS") as other:
                await fine(one)
                await two.send(HEADERS, 3)
                await fine(other)
                await settled()
                assert listeners(broker) == ["BROKERS", "CLIENTS"]
                await one.stream.aclose()
                assert (await two.receive(HEADERS, 3)).error_code == 0


@pytest.mark.parametrize(
    ("key", "broker_id"), [("max.connections", ""), ("listener.name.clients.max.connections", "1")]
)
async def test_a_raised_limit_admits_waiting_connections(key: str, broker_id: str) -> None:
    async with embedded_broker(**TWO, **{key.replace(".", "_"): "1"}) as broker:
        with trio.fail_after(SECONDS):
            async with at(broker, "CLIENTS") as one, at(broker, "CLIENTS") as two:
                await fine(one)
                await two.send(HEADERS, 3)
                await settled()
                assert listeners(broker) == ["CLIENTS"]
                assert await alter(broker, key, "2", broker_id) == 0
                assert (await two.receive(HEADERS, 3)).error_code == 0


async def test_a_lowered_limit_closes_the_connections_idle_for_longest(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        embedded_broker(**TWO) as broker,
        moved_by_hand(mock_clock),
        at(broker, "CLIENTS") as one,
        at(broker, "CLIENTS") as two,
        at(broker, "CLIENTS") as three,
        at(broker, "BROKERS") as other,
    ):
        for client in (other, two, one, three):
            await fine(client)
            mock_clock.jump(1)
        assert await alter(broker, "max.connections", "2") == 0
        for client in (two, one):
            assert await closed_by_broker(client)
        await fine(three)
        await fine(other)
    assert "closed the 2 connections that were idle for longest: max.connections exceeded" in caplog.messages


async def test_limits_that_would_admit_no_connection_are_refused() -> None:
    async with embedded_broker() as broker:
        assert await alter(broker, "max.connections", "0") != 0
        assert await alter(broker, "max.connection.creation.rate", "0") != 0


# -- addresses --------------------------------------------------------------------------------------------------------


async def test_repeated_rejections_of_an_address_are_logged_once(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker(max_connections_per_ip="1") as broker, moved_by_hand(mock_clock), dialled(broker) as one:
        await fine(one)
        for _ in range(5):
            async with dialled(broker) as another:
                assert await closed_by_broker(another)
        mock_clock.jump(LOG_INTERVAL_S)
        async with dialled(broker) as another:
            assert await closed_by_broker(another)
        assert await alter(broker, "max.connections.per.ip.overrides", "127.0.0.1:2") == 0
        async with dialled(broker) as another:
            await fine(another)
    line = "rejected a connection of 127.0.0.1: max.connections.per.ip=1 is reached"
    logged = [text for text in caplog.messages if text.startswith("rejected")]
    assert logged == [line, line + " (4 more since the last message)"]


async def test_an_address_that_connects_too_often_is_not_served_and_closed(mock_clock: MockClock) -> None:
    async with embedded_broker() as broker, moved_by_hand(mock_clock):
        await broker.services.quotas.alter(QuotaEntity(ip="127.0.0.1"), {QuotaKey.CONNECTIONS: "1"})
        for _ in range(10):
            async with dialled(broker) as one:
                await fine(one)
        await until(lambda: not reactor(broker).connections)
        async with dialled(broker) as hasty:
            await hasty.send(HEADERS, 3)
            await until(lambda: reactor(broker).connections)
            await settled()
            mock_clock.jump(0.9)
            await settled()
            assert len(reactor(broker).connections) == 1
            assert len(reactor(broker)._limits or ()) == 0
            mock_clock.jump(0.2)
            assert await closed_by_broker(hasty)
        mock_clock.jump(12)  # the window is over
        async with dialled(broker) as one:
            await fine(one)


async def test_host_names_are_looked_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    known = {"a.example": ["10.0.0.1", "fd00::1"], "b.example": ["10.0.0.2"]}
    asked = []

    async def addresses_of(host: str) -> list[str]:
        asked.append(host)
        await trio.lowlevel.checkpoint()
        if host not in known:
            raise OSError("no such host")
        return known[host]

    monkeypatch.setattr(addresses, "addresses_of", addresses_of)
    found: list[dict[str, int]] = []
    limits = HostLimits(lambda by_address: found.append(dict(by_address)))
    limits.set({"a.example": 5, "10.0.0.9": 3, "fd00:0::2": 4})
    async with trio.open_nursery() as nursery:
        await nursery.start(limits.run)
        assert found[0] == {"10.0.0.9": 3, "fd00::2": 4}
        assert found[-1] == {"10.0.0.1": 5, "fd00::1": 5, "10.0.0.9": 3, "fd00::2": 4}
        limits.set({"a.example": 6, "nowhere.example": 1, "b.example": 7})
        assert found[-1] == {"10.0.0.1": 6, "fd00::1": 6}
        await trio.testing.wait_all_tasks_blocked()
        assert found[-1] == {"10.0.0.1": 6, "fd00::1": 6, "10.0.0.2": 7}
        assert asked == ["a.example", "nowhere.example", "b.example"]
        nursery.cancel_scope.cancel()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "no limit for nowhere.example, it cannot be resolved" in record.getMessage()
    caplog.clear()


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", ["max_connection_creation_rate", "listener_name_clients_max_connection_creation_rate"]
)
async def test_too_many_new_connections_wait(mock_clock: MockClock, setting: str) -> None:
    async with embedded_broker(**{**TWO, setting: "2"}) as broker, moved_by_hand(mock_clock):
        for _ in range(20):
            async with at(broker, "CLIENTS") as client:
                await fine(client)
        async with at(broker, "CLIENTS") as late, at(broker, "CLIENTS") as later, at(broker, "BROKERS") as other:
            for client in (late, later):
                await client.send(HEADERS, 3)
            await fine(other)
            await settled()
            assert listeners(broker).count("CLIENTS") == 1
            mock_clock.jump(0.6)
            assert (await late.receive(HEADERS, 3)).error_code == 0
            await until(lambda: listeners(broker).count("CLIENTS") == 2)
            mock_clock.jump(1)
            assert (await later.receive(HEADERS, 3)).error_code == 0


async def test_a_waiting_connection_whose_client_has_left_is_released(mock_clock: MockClock) -> None:
    async with embedded_broker(max_connection_creation_rate="1") as broker, moved_by_hand(mock_clock):
        for _ in range(10):
            async with dialled(broker) as client:
                await fine(client)
        await until(lambda: not reactor(broker).connections)
        async with dialled(broker):
            await until(lambda: len(reactor(broker).connections) == 1)
        await settled()
        assert len(reactor(broker).connections) == 1  # nothing is read of it, not even its end
        mock_clock.jump(1)
        await until(lambda: not reactor(broker).connections)
        assert len(reactor(broker)._limits or ()) == 0


# -- who it is --------------------------------------------------------------------------------------------------------


async def test_a_log_in_has_a_time_limit(
    mock_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        sasl_broker(tmp_path) as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as silent,
        dialled(broker) as slow,
        dialled(broker) as quick,
    ):
        assert (await log_in(quick)).error_code == 0
        await handshake(slow)
        await until(lambda: len(reactor(broker).connections) == 3)
        mock_clock.jump(LOGIN_S - 1)
        await slow.stream.send_all(b"\0\0")  # to be active does not help
        await fine(quick)
        assert len(reactor(broker).connections) == 3
        mock_clock.jump(3)
        assert await closed_by_broker(silent)
        assert await closed_by_broker(slow)
        mock_clock.jump(LOGIN_S)
        await fine(quick)
        async with at(broker, "PLAINTEXT") as client:
            await fine(client)
    closed = [text for text in caplog.messages if "no log-in" in text]
    assert closed == ["closing the connection of 127.0.0.1: no log-in within 30 s on listener CLIENTS"]


async def test_to_log_in_again_has_a_time_limit_too(mock_clock: MockClock, tmp_path: Path) -> None:
    settings = {"listener.name.clients.plain.connections.max.reauth.ms": "3600000"}
    async with sasl_broker(tmp_path, **settings) as broker, moved_by_hand(mock_clock), dialled(broker) as client:
        assert (await log_in(client)).error_code == 0
        mock_clock.jump(2 * LOGIN_S)
        await fine(client)
        assert (await log_in(client)).error_code == 0
        mock_clock.jump(2 * LOGIN_S)
        await fine(client)
        assert (await handshake(client)).error_code == 0
        mock_clock.jump(LOGIN_S + 2)
        assert await closed_by_broker(client)
