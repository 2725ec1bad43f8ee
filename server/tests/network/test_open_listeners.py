"""Listeners that are added to a broker, changed and removed while it runs and serves over others."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from barnabas.replication import BROKER_CONFIG, USER_CONFIG, read_broker, write_config
from barnabas.replication.tree.users import settle_secret
from barnabas.server.broker.broker import Broker
from barnabas.server.network import listeners
from barnabas.server.network.open_listeners import CLOSE_S
from barnabas.server.network.reactor import Reactor
from barnabas.server.security.sasl.scram_credentials import ScramMechanism, make_credential
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic
from barnabas.server.tests.network.sasl_rig import JAAS, METADATA, PASSWORD, log_in
from barnabas.server.tests.network.tcp_rig import SECONDS, closed_by_broker, fine, moved_by_hand, reactor, until

AUTHORITY = trustme.CA()
BASE = "PLAINTEXT://127.0.0.1:0"
EXT = f"{BASE},EXT://127.0.0.1:0"
MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,EXT:PLAINTEXT,MORE:PLAINTEXT,SAFE:SASL_SSL,CLIENTS:SASL_PLAINTEXT"
MAPPED = {"listener_security_protocol_map": MAP}
SCRAM = "listener.name.clients.sasl.enabled.mechanisms"
_Set = IncrementalAlterConfigsRequest.AlterableConfig


async def alter(
    client: Client,
    settings: dict[str, str | None],
    broker_id: str = "1",
    *,
    validate_only: bool = False,
) -> tuple[ErrorCode, str]:
    """Set settings, or delete those that are None; code and message."""
    configs = [_Set(name=key, config_operation=int(value is None), value=value) for key, value in settings.items()]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=broker_id, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await client.ask(request, 1)).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


OK = (ErrorCode.NONE, "")


async def described(client: Client, *keys: str) -> dict[str, tuple[str | None, int, bool]]:
    """Value, source and whether it is read-only, of settings of broker 1."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=list(keys)
    )
    (answer,) = (await client.ask(DescribeConfigsRequest(resources=[resource]), 4)).results
    return {each.name: (each.value, each.config_source, each.read_only) for each in answer.configs}


async def registered(broker: Broker) -> dict[str, tuple[str, int, str]]:
    """Host, port and protocol by listener, as the store has them."""
    found = await read_broker(broker.services.cluster.store, broker.config.broker_id)
    assert found is not None
    return {each.listener: (each.host, each.port, each.security_protocol) for each in found.endpoints}


def port_of(broker: Broker, listener: str) -> int:
    (port,) = [endpoint.port for endpoint in broker.endpoints if endpoint.listener == listener]
    return port


@asynccontextmanager
async def at(broker: Broker, listener: str) -> AsyncIterator[Client]:
    async with await trio.open_tcp_stream("127.0.0.1", port_of(broker, listener)) as stream:
        yield Client(stream)


@asynccontextmanager
async def through_tls(broker: Broker, listener: str) -> AsyncIterator[Client]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    stream = await trio.open_tcp_stream("127.0.0.1", port_of(broker, listener))
    async with trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True) as secured:
        yield Client(secured)


def key_store(folder: Path) -> str:
    path = folder / "broker.pem"
    path.write_bytes(AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.bytes())
    return str(path)


async def make_alice(broker: Broker) -> None:
    member = broker.services.cluster
    texts = {one.value: make_credential(one, PASSWORD, b"salt", 4096).text() for one in ScramMechanism}
    await write_config(member.store, USER_CONFIG, "alice", lambda stored: texts)
    await member.reload_config(USER_CONFIG, "alice")


async def ports(client: Client) -> list[int]:
    return [broker.port for broker in (await client.ask(METADATA, 12)).brokers]


# -- added and removed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("portable", [False, True], ids=["epoll", "poll"])
async def test_a_listener_is_added_used_and_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, portable: bool
) -> None:
    monkeypatch.setattr("barnabas.server.network.reactor.PORTABLE", portable)
    caplog.set_level(logging.INFO, "barnabas")
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as old:
            before = await registered(broker)
            assert await alter(old, {"listeners": EXT}) == OK
            assert await described(old, "listeners") == {"listeners": (EXT, 2, False)}
            async with at(broker, "EXT") as new:
                found = await registered(broker)
                assert found == {**before, "EXT": ("127.0.0.1", port_of(broker, "EXT"), "PLAINTEXT")}
                assert await ports(new) == [found["EXT"][1]]
                assert await ports(old) == [before["PLAINTEXT"][1]]
                assert await alter(old, {"listeners": None}) == OK
                assert await closed_by_broker(new)
            assert await registered(broker) == before
            with pytest.raises(OSError, match="all attempts to connect"):
                await trio.open_tcp_stream("127.0.0.1", found["EXT"][1])
            assert await described(old, "listeners") == {"listeners": (BASE, 4, False)}
            assert await ports(old) == [before["PLAINTEXT"][1]]
            assert len(reactor(broker).connections) == 1
    logged = [record.getMessage() for record in caplog.records if "listener EXT" in record.getMessage()]
    assert logged == ["listener EXT://127.0.0.1:0 is open", "listener EXT://127.0.0.1:0 is closed"]


async def test_the_request_that_removes_its_own_listener_is_answered(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker:
            async with at(broker, "PLAINTEXT") as old:
                assert await alter(old, {"listeners": EXT}) == OK
            async with at(broker, "EXT") as new:
                assert await alter(new, {"listeners": BASE}) == OK
                assert await closed_by_broker(new)


async def test_pending_requests_of_a_removed_listener_have_a_second(mock_clock: MockClock) -> None:
    async with embedded_broker(**MAPPED) as broker, moved_by_hand(mock_clock), at(broker, "PLAINTEXT") as old:
        await topic(broker)
        waiters = broker.services.partitions.get("t", 0)._waiters
        assert await alter(old, {"listeners": EXT}) == OK
        async with at(broker, "EXT") as idle, at(broker, "EXT") as waits, at(broker, "EXT") as gets:
            await fine(idle)
            for client in (waits, gets):
                await client.send(fetch(("t", 0, 0), max_wait_ms=60_000, min_bytes=1 + 500 * (client is waits)), 12)
            await until(lambda: len(waiters) == 2)
            assert await alter(old, {"listeners": BASE}) == OK
            assert await closed_by_broker(idle)
            assert only(await old.ask(request(batch(b"a")), 9)).error_code == 0
            assert values(flat(await gets.receive(fetch(), 12))[0]) == [b"a"]
            assert await closed_by_broker(gets)
            mock_clock.jump(CLOSE_S * 0.9)
            await fine(old)
            assert [one.listener for one in reactor(broker).connections] == ["PLAINTEXT", "EXT"]
            mock_clock.jump(CLOSE_S * 0.1)
            assert await closed_by_broker(waits)
            await fine(old)
            assert not waiters


async def test_one_takes_the_port_of_another(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            assert await alter(client, {"listeners": EXT}) == OK
            port = port_of(broker, "EXT")
            fixed = f"{BASE},EXT://127.0.0.1:{port}"
            assert (await alter(client, {"listeners": fixed}))[0] == ErrorCode.INVALID_REQUEST
            assert await alter(client, {"listeners": BASE}) == OK
            assert await alter(client, {"listeners": fixed}) == OK
            assert await alter(client, {"listeners": fixed.replace(",EXT", ",MORE")}) == OK
            assert port_of(broker, "MORE") == port
            async with at(broker, "MORE") as other:
                await fine(other)


async def test_advertised_addresses_change_and_sockets_stay(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            settings: dict[str, str | None] = {"listeners": EXT, "advertised.listeners": "PLAINTEXT://example.org:1"}
            assert await alter(client, settings) == OK
            assert await registered(broker) == {"PLAINTEXT": ("example.org", 1, "PLAINTEXT")}
            assert await ports(client) == [1]
            assert await alter(client, {"advertised.listeners": "PLAINTEXT://a:1,EXT://b:2"}) == OK
            found = await registered(broker)
            assert [place[:2] for place in found.values()] == [("a", 1), ("b", 2)]
            assert await alter(client, dict.fromkeys(settings)) == OK
            assert [host for host, _, _ in (await registered(broker)).values()] == ["127.0.0.1"]


async def test_replacing_all_settings_removes_a_listener(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            for value, names in ((EXT, ["PLAINTEXT", "EXT"]), (None, ["PLAINTEXT"])):
                configs = [AlterConfigsRequest.AlterableConfig(name="listeners", value=value)] if value else []
                resource = AlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
                (answer,) = (await client.ask(AlterConfigsRequest(resources=[resource]), 2)).responses
                assert answer.error_code == ErrorCode.NONE
                assert [endpoint.listener for endpoint in broker.endpoints] == names


# -- TLS and log-ins ---------------------------------------------------------------------------------------------------


async def test_the_first_listener_with_tls_and_log_ins(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **MAPPED) as broker, at(broker, "PLAINTEXT") as old:
            await make_alice(broker)
            settings: dict[str, str | None] = {
                "listeners": f"{BASE},SAFE://127.0.0.1:0",
                "listener.name.safe.ssl.keystore.location": key_store(tmp_path),
                "listener.name.safe.ssl.keystore.type": "PEM",
                "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            }
            assert await alter(old, settings) == OK
            async with through_tls(broker, "SAFE") as client:
                assert (await log_in(client, "SCRAM-SHA-256")).error_code == ErrorCode.NONE
                await fine(client)
                session = next(one.session for one in reactor(broker).connections if one.listener == "SAFE")
                assert (str(session.principal), session.protocol) == ("User:alice", "SASL_SSL")
                assert await alter(old, dict.fromkeys(settings)) == OK
                assert await closed_by_broker(client)
            await fine(old)
            kept = await settle_secret(broker.services.cluster.store, lambda: pytest.fail("there is none"))
            assert broker.services.users.scram.secret == kept


async def test_a_listener_that_comes_back_has_its_new_settings_of_sasl(tmp_path: Path) -> None:
    static = {**MAPPED, "listener.name.clients.plain.sasl.jaas.config": JAAS}
    there = f"{BASE},CLIENTS://127.0.0.1:0"
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **static) as broker, at(broker, "PLAINTEXT") as old:
            await make_alice(broker)
            assert await alter(old, {"listeners": there, SCRAM: "PLAIN"}) == OK
            async with at(broker, "CLIENTS") as client:
                assert (await log_in(client, "PLAIN")).error_code == ErrorCode.NONE
            code, message = await alter(old, {SCRAM: "SCRAM-SHA-512"})
            assert code == ErrorCode.INVALID_REQUEST
            assert message == f"{SCRAM}=SCRAM-SHA-512 is refused: it cannot be changed while the listener is open."
            assert await alter(old, {"listeners": BASE}) == OK
            assert await alter(old, {"listeners": there, SCRAM: "SCRAM-SHA-512"}) == OK
            async with at(broker, "CLIENTS") as client:
                assert (await log_in(client, "SCRAM-SHA-512")).error_code == ErrorCode.NONE
                await fine(client)
            assert await alter(old, {"listeners": there.replace("CLIENTS", "EXT"), SCRAM: None}) == OK
            async with at(broker, "EXT") as client:  # without a log-in
                await fine(client)


async def test_another_certificate_for_a_listener_that_was_added(tmp_path: Path) -> None:
    keys = {"organization_name": "o", "organization_unit_name": "u"}
    stores = []
    for name in ("one", "two"):
        certificate = AUTHORITY.issue_cert("localhost", "127.0.0.1", **keys)
        (tmp_path / name).write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
        stores.append(str(tmp_path / name))
    key, shown = "listener.name.ssl.ssl.keystore.location", []
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **MAPPED) as broker, at(broker, "PLAINTEXT") as old:
            assert await alter(old, {"listeners": f"{BASE},SSL://127.0.0.1:0", key: stores[0]}) == OK
            for store in stores:
                assert await alter(old, {key: store}) == OK
                async with through_tls(broker, "SSL") as client:
                    await fine(client)
                    assert isinstance(client.stream, trio.SSLStream)
                    shown.append(client.stream.getpeercert(binary_form=True))
    assert shown[0] != shown[1]


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"listeners": "EXT://127.0.0.1:0"},
            "none is called PLAINTEXT, so inter.broker.listener.name must name one of EXT",
        ),
        ({"listeners": ""}, "it must name a listener"),
        ({"listeners": "nonsense"}, "must be written as NAME://host:port"),
        ({"listeners": f"{BASE},OTHER://127.0.0.1:0"}, "'OTHER' must be in listener.security.protocol.map"),
        ({"listeners": f"{BASE},EXT://127.0.0.1:7,MORE://127.0.0.1:7"}, "EXT and MORE must have different ports"),
        ({"listeners": f"PLAINTEXT://localhost:0,{EXT.split(',')[1]}"}, "the address of PLAINTEXT cannot be changed"),
        ({"listeners": f"{BASE},EXT://192.0.2.1:0"}, "cannot listen on EXT://192.0.2.1:0: "),
        ({"listeners": f"{BASE},SSL://127.0.0.1:0"}, "for listener SSL: "),
        ({"listeners": f"{BASE},CLIENTS://127.0.0.1:0"}, "GSSAPI (Kerberos) is not available"),
        ({"listeners": f"{BASE},CLIENTS://127.0.0.1:0", SCRAM: "PLAIN"}, "it names no users"),
        ({"advertised.listeners": "EXT://127.0.0.1:1"}, "EXT must be one of the listeners: PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to 0.0.0.0"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, "the protocol of PLAINTEXT cannot be changed while"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "it cannot be changed while the listener is open"),
        ({"listener.name.ext.ssl.keystore.password": "x"}, "passwords and keys cannot be set while the broker runs"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "as listener.name.<name>.sasl.enabled.mechanisms"),
        ({"control.plane.listener.name": "EXT"}, "cannot be changed while the broker runs"),
    ],
    ids=str,
)
async def test_invalid_changes_are_refused_before_anything_is_stored(
    tmp_path: Path, settings: dict[str, str | None], why: str, validate_only: bool
) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            endpoints = broker.endpoints
            code, message = await alter(client, settings, validate_only=validate_only)
            assert code == ErrorCode.INVALID_REQUEST
            assert why in message
            assert message.endswith(".")
            assert broker.services.image.broker_configs.get("1", {}) == {}
            assert broker.endpoints == endpoints
            await fine(client)


async def test_a_port_that_is_taken_refuses_the_change(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS), closing(socket.create_server(("127.0.0.1", 0))) as other:
        wanted = f"{BASE},EXT://127.0.0.1:{other.getsockname()[1]}"
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            code, message = await alter(client, {"listeners": wanted})
            assert code == ErrorCode.INVALID_REQUEST
            assert message.startswith(f"listeners={wanted} is refused: cannot listen on EXT://")
            assert "address already in use" in message
            other.close()
            assert await alter(client, {"listeners": wanted}, validate_only=True) == OK
            assert [endpoint.listener for endpoint in broker.endpoints] == ["PLAINTEXT"]
            assert await alter(client, {"listeners": wanted}) == OK
            async with at(broker, "EXT") as new:
                await fine(new)


async def test_listeners_cannot_be_set_for_all_brokers(tmp_path: Path) -> None:
    async with embedded_broker(tmp_path, **MAPPED) as broker, connected(broker) as client:
        for settings in ({"listeners": EXT}, {"listener.name.ext.sasl.enabled.mechanisms": "PLAIN"}):
            code, message = await alter(client, dict(settings), "")
            assert (code, "it must be set for one broker by its id" in message) == (ErrorCode.INVALID_REQUEST, True)


async def test_the_listener_of_the_controller_is_left_alone(tmp_path: Path) -> None:
    static = {**MAPPED, "listeners": f"{EXT},MORE://127.0.0.1:0", "control_plane_listener_name": "EXT"}
    async with embedded_broker(tmp_path, **static) as broker, connected(broker) as client:
        code, message = await alter(client, {"listeners": BASE})
        assert (code, "control.plane.listener.name=EXT is refused" in message) == (ErrorCode.INVALID_REQUEST, True)
        assert await alter(client, {"listeners": EXT}) == OK
        assert [endpoint.listener for endpoint in broker.endpoints] == ["PLAINTEXT", "EXT"]


async def test_a_fault_of_ours_costs_one_listener_until_settings_are_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = Reactor.add_listener, 0

    def fail_once(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # of the second address of MORE
            raise RuntimeError("a fault of ours")
        add(*arguments)

    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            monkeypatch.setattr(Reactor, "add_listener", fail_once)
            twice = f"{BASE},MORE://localhost:0,EXT://127.0.0.1:0"
            monkeypatch.setattr(listeners, "_LOOPBACK", ("127.0.0.1", "127.0.0.2"))
            assert await alter(client, {"listeners": twice}) == OK
            # The notice of this change in the store is another attempt.
            await broker.services.cluster.image_until(lambda image: len(image.brokers[1].endpoints) == 3)
            assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
                "opening listener MORE://localhost:0 failed"
            ]
            for name in ("MORE", "EXT"):
                async with at(broker, name) as other:
                    await fine(other)


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_limits_count_for_a_listener_that_was_added(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path, **MAPPED) as broker, at(broker, "PLAINTEXT") as old:
            assert await alter(old, {"listeners": EXT, "listener.name.ext.max.connections": "1"}) == OK
            async with at(broker, "EXT") as first, at(broker, "EXT") as second:
                await fine(first)
                await second.send(METADATA, 12)
                assert [one.listener for one in reactor(broker).connections].count("EXT") == 1
                assert await alter(old, {"listener.name.ext.max.connections": "2"}) == OK
                assert (await second.receive(METADATA, 12)).brokers


# -- starts, and changes that others make ------------------------------------------------------------------------------


async def test_listeners_outlive_a_restart(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        static = {**MAPPED, "listeners": f"{BASE},MORE://127.0.0.1:0"}
        async with embedded_broker(tmp_path / "data", **static) as broker, at(broker, "PLAINTEXT") as client:
            await make_alice(broker)
            settings: dict[str, str | None] = {
                "listeners": f"{BASE},SAFE://127.0.0.1:0",  # and MORE is gone
                "listener.name.safe.ssl.keystore.location": key_store(tmp_path),
                "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            }
            assert await alter(client, settings) == OK
        async with embedded_broker(tmp_path / "data", **static) as broker, at(broker, "PLAINTEXT") as client:
            assert list(await registered(broker)) == ["PLAINTEXT", "SAFE"]
            async with through_tls(broker, "SAFE") as new:
                assert (await log_in(new, "SCRAM-SHA-256")).error_code == ErrorCode.NONE
                await fine(new)
            assert await alter(client, dict.fromkeys(settings)) == OK
            assert [endpoint.listener for endpoint in broker.endpoints] == ["PLAINTEXT", "MORE"]


async def test_a_broker_starts_without_an_added_listener_that_cannot_be_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
            key = "listener.name.ssl.ssl.keystore.location"
            assert await alter(client, {"listeners": f"{EXT},SSL://127.0.0.1:0", key: key_store(tmp_path)}) == OK
            port = port_of(broker, "EXT")
            wanted = f"{BASE},EXT://127.0.0.1:{port},SSL://127.0.0.1:0"
            assert await alter(client, {"listeners": BASE}) == OK
            assert await alter(client, {"listeners": wanted}) == OK
        (tmp_path / "broker.pem").unlink()
        with closing(socket.create_server(("127.0.0.1", port))) as other:
            async with embedded_broker(tmp_path / "data", **MAPPED) as broker, at(broker, "PLAINTEXT") as client:
                assert list(await registered(broker)) == ["PLAINTEXT"]
                assert (await described(client, "listeners"))["listeners"] == (wanted, 2, False)
                assert await alter(client, {"log.cleaner.backoff.ms": "1"}) == OK
                tls, port_taken = (
                    record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
                )  # each logged once
                assert tls.startswith(f"listener SSL is not opened: {key}={tmp_path}/broker.pem is refused: ")
                assert port_taken.startswith(f"listener EXT is not opened: cannot listen on EXT://127.0.0.1:{port}: ")
                other.close()
                assert await alter(client, {"log.cleaner.backoff.ms": "2"}) == OK
                async with at(broker, "EXT") as new:
                    await fine(new)
                assert await alter(client, {"listeners": None, key: None}) == OK


async def test_changes_that_another_broker_stores_are_applied(caplog: pytest.LogCaptureFixture) -> None:
    names = ("PLAINTEXT", "EXT")
    with trio.fail_after(SECONDS):
        async with embedded_cluster(2, **MAPPED) as cluster:
            store = cluster[1].services.cluster.store

            async def write(**settings: str) -> None:
                await write_config(
                    store, BROKER_CONFIG, "2", lambda _: {key.replace("_", "."): text for key, text in settings.items()}
                )

            await write(listeners=EXT)
            await cluster.image_until(lambda image: len(image.brokers[2].endpoints) == 2)
            async with at(cluster[2], "EXT") as client:
                (known,) = (await client.ask(METADATA, 12)).brokers  # the other one is not on this listener
                assert (known.node_id, known.port) == (2, port_of(cluster[2], "EXT"))
            assert list(await registered(cluster[2])) == list(names)
            assert list(await registered(cluster[1])) == ["PLAINTEXT"]

            # Invalid settings are left out, and those beside them are not.
            moved = EXT.replace("EXT://127.0.0.1", "EXT://localhost")
            for number, wrong in enumerate((moved, "nonsense", "EXT://127.0.0.1:0"), 1000):
                caplog.clear()
                await write(listeners=wrong, log_cleaner_backoff_ms=str(number))
                while cluster[2].config.get_int("log.cleaner.backoff.ms") != number:
                    await trio.lowlevel.checkpoint()
                assert "settings of listeners are left as they are: " in caplog.text
                assert f"listeners={wrong} is refused: " in caplog.text
                assert cluster[2].config.get_str("listeners") == EXT
                async with at(cluster[2], "EXT") as client:
                    await fine_at_2(client)

            await cluster.expire(2)  # and it registers again, with what it has now
            await cluster.image_until(lambda image: 2 in image.brokers and len(image.brokers[2].endpoints) == 2)
            await write()
            await cluster.image_until(lambda image: 2 in image.brokers and len(image.brokers[2].endpoints) == 1)
            assert list(await registered(cluster[2])) == ["PLAINTEXT"]


async def fine_at_2(client: Client) -> None:
    assert [broker.node_id for broker in (await client.ask(METADATA, 12)).brokers] == [2]


async def test_no_broker_is_advertised_where_another_is() -> None:
    with trio.fail_after(SECONDS):
        async with embedded_cluster(2, **MAPPED) as cluster, at(cluster[1], "PLAINTEXT") as client:
            there = port_of(cluster[2], "PLAINTEXT")
            settings = {"listeners": EXT, "advertised.listeners": f"PLAINTEXT://a:1,EXT://127.0.0.1:{there}"}
            code, message = await alter(client, dict(settings))
            assert code == ErrorCode.INVALID_REQUEST
            assert f"EXT would be advertised where broker 2 is, at 127.0.0.1:{there}" in message
