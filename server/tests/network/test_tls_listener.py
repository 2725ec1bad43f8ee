"""Listeners with TLS from settings to the client: who a certificate is, SASL within TLS, stores that change while
connections live, brokers that connect to each other.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import IncrementalAlterConfigsRequest
from barnabas.replication import Endpoint
from barnabas.server.broker.broker import Broker
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.network.peer_tls import encrypted
from barnabas.server.network.peers import PeerConnection, PeerError, tcp_connect
from barnabas.server.network.tls_listener import tls_listeners
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.network.sasl_rig import JAAS, METADATA, log_in
from barnabas.server.tests.network.tcp_rig import SECONDS, reactor

AUTHORITY = trustme.CA()


def _write(path: Path, certificate: trustme.LeafCert) -> None:
    """Certificate and key; at another time than whatever was there."""
    before_ns = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
    os.utime(path, ns=(before_ns + 10**9, before_ns + 10**9))


def _settings(folder: Path, name: str = "SSL", protocol: str = "SSL", **others: str) -> dict[str, str]:
    """Of a broker with one listener, which is for its clients and for other brokers."""
    _write(folder / "broker.pem", AUTHORITY.issue_cert("localhost", "127.0.0.1"))
    (folder / "trust.pem").write_bytes(AUTHORITY.cert_pem.bytes())
    return {
        "listeners": f"{name}://127.0.0.1:0",
        "listener.security.protocol.map": f"{name}:{protocol}",
        "inter.broker.listener.name": name,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "trust.pem"),
        **{key.replace("_", "."): value for key, value in others.items()},
    }


@asynccontextmanager
async def _dialled(broker: Broker, certificate: trustme.LeafCert | None = None) -> AsyncIterator[Client]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    host, _, port = broker.bootstrap.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True) as secured:
        yield Client(secured)


async def _principal(broker: Broker, certificate: trustme.LeafCert | None = None) -> str:
    async with _dialled(broker, certificate) as client:
        assert (await client.ask(METADATA, 12)).brokers
        (connection,) = reactor(broker).connections
        assert (connection.session.listener, connection.session.protocol) == ("SSL", "SSL")
        return str(connection.session.principal)


async def test_a_certificate_names_the_principal(tmp_path: Path) -> None:
    rules = "RULE:^CN=([^,]+),.*$/$1/L"
    settings = _settings(tmp_path, ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker:
            assert await _principal(broker, AUTHORITY.issue_cert("a@example.org", common_name="Alice")) == "User:alice"
            await _until_empty(broker)
            assert await _principal(broker) == "User:ANONYMOUS"


async def test_a_certificate_that_no_rule_fits_is_not_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = _settings(tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=bob,.*$/bob/")
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker:
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await _principal(broker, AUTHORITY.issue_cert("a@example.org", common_name="alice"))
    assert "none of ssl.principal.mapping.rules matches the peer's certificate, of CN=alice," in caplog.text


async def test_a_client_without_a_required_certificate_is_rejected(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **_settings(tmp_path, ssl_client_auth="required")) as broker:
            for certificate in (None, trustme.CA().issue_cert("a@example.org")):
                with pytest.raises((EOFError, trio.BrokenResourceError)):
                    await _principal(broker, certificate)
            assert await _principal(broker, AUTHORITY.issue_cert("a@example.org", common_name="alice"))


async def test_a_log_in_goes_through_tls(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "IN", "SASL_SSL", ssl_client_auth="required")  # does not count, without the listener
    mechanism = {
        "listener.name.in.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.in.plain.sasl.jaas.config": JAAS,
    }
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings, **mechanism) as broker, _dialled(broker) as client:
            assert (await log_in(client)).error_code == ErrorCode.NONE
            assert (await client.ask(METADATA, 12)).brokers
            (connection,) = reactor(broker).connections
            assert (str(connection.session.principal), connection.session.protocol) == ("User:alice", "SASL_SSL")


async def _set_again(client: Client, path: Path) -> ErrorCode:
    return (await _set(client, path))[0]


async def _set(client: Client, path: Path, *, validate_only: bool = False) -> tuple[ErrorCode, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="1",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="listener.name.ssl.ssl.keystore.location", config_operation=0, value=str(path)
            )
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await client.ask(request, 1)).responses
    return ErrorCode(result.error_code), result.error_message


async def _shown(broker: Broker) -> bytes | None:
    async with _dialled(broker) as client:
        assert (await client.ask(METADATA, 12)).brokers
        assert isinstance(client.stream, trio.SSLStream)
        return client.stream.getpeercert(binary_form=True)


async def test_a_new_certificate_is_shown_when_the_store_is_set_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    issue = AUTHORITY.issue_cert
    settings = _settings(tmp_path)
    path = tmp_path / "broker.pem"
    _write(path, issue("localhost", "127.0.0.1", organization_name="o", organization_unit_name="u"))
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker, _dialled(broker) as old:
            first = await _shown(broker)
            _write(path, issue("localhost", "127.0.0.1", "more", organization_name="o", organization_unit_name="u"))
            assert await _shown(broker) == first  # a file alone says nothing
            assert await _set_again(old, path) == ErrorCode.NONE
            second = await _shown(broker)
            assert second != first
            assert (await old.ask(METADATA, 12)).brokers  # connections go on
            for wrong, why in (
                (issue("localhost", "127.0.0.1", "more"), "the certificate is of OU="),
                (
                    issue("localhost", "127.0.0.1", organization_name="o", organization_unit_name="u"),
                    "lacks alternative names",
                ),
            ):
                _write(path, wrong)
                assert await _set_again(old, path) == ErrorCode.NONE
                assert await _shown(broker) == second
                assert why in caplog.records[-1].getMessage()
            path.write_text("nothing")
            await _set_again(old, path)
            assert await _shown(broker) == second
            assert "is neither PEM nor PKCS12" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_store_that_cannot_be_used_is_refused_when_it_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, validate_only: bool
) -> None:
    settings = _settings(tmp_path)
    ours = {"organization_name": "o", "organization_unit_name": "u"}
    _write(tmp_path / "broker.pem", AUTHORITY.issue_cert("localhost", "127.0.0.1", **ours))
    _write(tmp_path / "stranger.pem", AUTHORITY.issue_cert("localhost", "127.0.0.1", organization_name="p"))
    _write(tmp_path / "less.pem", AUTHORITY.issue_cert("localhost", **ours))
    _write(tmp_path / "good.pem", AUTHORITY.issue_cert("localhost", "127.0.0.1", **ours))
    key = AUTHORITY.issue_cert("localhost", "127.0.0.1", **ours).private_key_pem.bytes()
    (tmp_path / "mixed.pem").write_bytes(key + (tmp_path / "good.pem").read_bytes().split(b"KEY-----\n")[-1])
    (tmp_path / "empty.pem").write_text("")
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker, _dialled(broker) as client:
            first = await _shown(broker)
            for name, why in (
                ("none.pem", "cannot be read: No such file"),
                ("empty.pem", "is neither PEM nor PKCS12"),
                ("mixed.pem", "holds a private key that does not belong to its certificate"),
                ("stranger.pem", "the certificate is of "),
                ("less.pem", "lacks alternative names"),
            ):
                code, message = await _set(client, tmp_path / name, validate_only=validate_only)
                assert code == ErrorCode.INVALID_REQUEST
                assert why in (message or "")
            assert broker.services.image.broker_configs.get("1", {}) == {}
            assert await _shown(broker) == first
            caplog.clear()
            assert await _set(client, tmp_path / "good.pem", validate_only=validate_only) == (ErrorCode.NONE, None)
            assert (await _shown(broker) == first) is validate_only


async def test_certificates_change_under_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No client is rejected while the store is set again and again, nor any connection closed."""
    settings, path = _settings(tmp_path), tmp_path / "broker.pem"
    names = {"organization_name": "o", "organization_unit_name": "u"}
    _write(path, AUTHORITY.issue_cert("localhost", "127.0.0.1", **names))
    changes, asked, shown, done = 6, 0, set(), False
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker, _dialled(broker) as admin:

            async def stay() -> None:
                nonlocal asked
                async with _dialled(broker) as client:
                    while not done:
                        assert (await client.ask(METADATA, 12)).brokers
                        asked += 1

            async def come_and_go() -> None:
                while not done:
                    shown.add(await _shown(broker))

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(stay)
                    nursery.start_soon(come_and_go)
                for _ in range(changes):
                    before = len(shown)
                    _write(path, AUTHORITY.issue_cert("localhost", "127.0.0.1", **names))
                    assert await _set_again(admin, path) == ErrorCode.NONE
                    while len(shown) == before:
                        await trio.lowlevel.checkpoint()
                done = True
    assert len(shown) >= changes
    assert asked
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_brokers_connect_through_tls_and_verify_each_other(tmp_path: Path) -> None:
    settings = _settings(tmp_path, ssl_client_auth="required")
    (tmp_path / "other").mkdir()
    config = BrokerConfig.from_values({**settings, "zookeeper.connect": "localhost:1", "broker.id": "2"})
    ours = tls_listeners(config)["SSL"]
    with trio.fail_after(SECONDS):
        async with embedded_broker(tmp_path / "data", **settings) as broker:
            host, _, port = broker.bootstrap.rpartition(":")
            endpoint = Endpoint("SSL", host, int(port), "SSL")
            connection = PeerConnection(encrypted(tcp_connect, lambda: ours.client_context), "2", SECONDS)
            assert (await connection.ask(endpoint, METADATA, 12)).brokers
            await connection.close()
            stranger = ssl.create_default_context()
            with pytest.raises(PeerError, match=r"TLS with 127.0.0.1:\d+ failed: .*self.signed"):
                await PeerConnection(encrypted(tcp_connect, lambda: stranger), "2", SECONDS).ask(endpoint, METADATA, 12)
            with pytest.raises(PeerError, match="has SSL, and ours between brokers has no TLS"):
                await PeerConnection(tcp_connect, "2", SECONDS).ask(endpoint, METADATA, 12)


def test_all_errors_of_stores_and_rules_are_reported_by_key(tmp_path: Path) -> None:
    values = {
        "listeners": "SSL://127.0.0.1:0,MORE://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,MORE:SSL",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "none.p12"),
        "listener.name.more.ssl.keystore.location": _settings(tmp_path)["ssl.keystore.location"],
        "listener.name.more.ssl.principal.mapping.rules": "nonsense",
    }
    with pytest.raises(SettingsRefused) as caught:
        tls_listeners(BrokerConfig.from_values(values))
    first, second = caught.value.problems
    assert first.startswith(f"ssl.keystore.location={tmp_path}/none.p12 is refused: for listener SSL: {tmp_path}/none")
    assert second.startswith("listener.name.more.ssl.principal.mapping.rules=nonsense is refused: for listener MORE: ")


async def _until_empty(broker: Broker) -> None:
    while reactor(broker).connections:
        await trio.lowlevel.checkpoint()
