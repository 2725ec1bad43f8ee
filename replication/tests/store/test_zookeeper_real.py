"""The store on real ZooKeeper servers that are killed, stopped and started, that vote, that want a login or TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

from barnabas.replication.store.store import (
    AccessDenied,
    Changed,
    Check,
    ConnectionLost,
    Create,
    NodeExists,
    SessionBack,
    SessionExpired,
    SessionLost,
    Set,
    StoreFailed,
    VersionMoved,
)
from barnabas.replication.store.zk import ZooKeeperStore, zookeeper_store
from barnabas.replication.store.zk_client import OneThread
from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings
from compat_tests.harness.ports import free_ports
from compat_tests.harness.zookeeper import Ensemble, ZooKeeper, ZooKeeperFailed, ensemble, zookeeper

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
LONG_MS = 100_000
"""Longer than anything stands still."""


def patient(connect: str, **more: Any) -> ZooKeeperSettings:
    """Settings of sessions that do not end by themselves."""
    return ZooKeeperSettings(connect=connect, session_timeout_ms=LONG_MS, connection_timeout_ms=LONG_MS, **more)


async def in_thread(function: Callable[[], Any]) -> None:
    await trio.to_thread.run_sync(function)


async def made(store: ZooKeeperStore, path: str, *, ephemeral: bool = False) -> None:
    """Make a node, in a session that may end, or whose connection may."""
    while True:
        try:
            await store.commit([Create(path, ephemeral=ephemeral)])
            return
        except NodeExists:
            return  # by the attempt before, whose answer was lost
        except (SessionExpired, ConnectionLost):
            await trio.sleep(0.05)


async def leader_of(servers: Ensemble) -> ZooKeeper:
    """The server that leads; waits for one."""
    with trio.fail_after(120):
        while True:
            try:
                return await trio.to_thread.run_sync(servers.leader)
            except ZooKeeperFailed:
                await trio.sleep(0.1)


async def count_up(store: ZooKeeperStore, path: str, progress: list[int]) -> None:
    """Write the node again and again, guarded by its version, as a controller does; `progress`: answered, unknown."""
    node = await store.get(path)
    assert node is not None
    version = node.version
    while True:
        try:
            await store.commit([Check(path, version), Set(path, b"%d" % (version + 1), version)])
            progress[0] += 1
            version += 1
        except SessionExpired:
            await trio.sleep(0.05)
            node = await store.get(path)
            assert node is not None
            assert node.version == version, "nothing was done"
        except ConnectionLost:
            node = await store.get(path)
            assert node is not None
            assert node.version - version in (0, 1), "done once or not at all"
            progress[1] += 1
            version = node.version


async def grows(progress: list[int]) -> None:
    """Return when something more was written."""
    before = progress[0]
    with trio.fail_after(120):
        while progress[0] < before + 20:  # noqa: ASYNC110 – a counter is all there is
            await trio.sleep(0.01)


async def test_a_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with zookeeper(tmp_path) as server:
        settings = ZooKeeperSettings(connect=server.connect, session_timeout_ms=60_000)
        async with zookeeper_store(settings) as store, zookeeper_store(settings) as other:
            await store.commit([Create("/a"), Create("/mine", ephemeral=True), Create("/seen", b"0")])
            session = store.session_id
            progress = [0, 0]
            async with other.changes(["/seen"]) as changes, trio.open_nursery() as nursery:
                nursery.start_soon(count_up, store, "/a", progress)
                for number in range(2):
                    await grows(progress)
                    await in_thread(server.kill)
                    await in_thread(server.start)
                    await grows(progress)
                    await other.commit([Set("/seen", b"%d" % number)])
                    with trio.fail_after(120):
                        assert await anext(changes) == Changed(frozenset({"/seen"}))
                nursery.cancel_scope.cancel()
            assert store.session_id == session, "the session outlives the server"
            assert await other.get("/mine") is not None
            node = await store.get("/a")
            assert node is not None
            assert 0 <= node.version - progress[0] <= progress[1] + 1
            assert progress[1]


async def test_a_server_that_is_stopped_for_longer_than_a_session(tmp_path: Path) -> None:
    with zookeeper(tmp_path) as server:
        settings = ZooKeeperSettings(connect=server.connect, session_timeout_ms=2000, connection_timeout_ms=60_000)
        async with zookeeper_store(settings) as store, zookeeper_store(settings) as stranger:
            await made(stranger, "/a")
            events: list[object] = []
            async with AsyncExitStack() as stack:
                while True:
                    session = store.session_id
                    changes = await stack.enter_async_context(store.changes(["/a"]))
                    if session and store.session_id == session:
                        break
                    await trio.sleep(0.05)  # it ended just then: whether that is told here, nobody knows
                nursery = await stack.enter_async_context(trio.open_nursery())
                server.pause()
                answered = trio.Event()

                async def look() -> None:
                    assert (await store.get("/a")) is not None
                    answered.set()

                nursery.start_soon(look)
                await trio.sleep(4)
                assert not answered.is_set()
                server.resume()
                with trio.fail_after(120):
                    await answered.wait()
                    while True:
                        try:
                            await store.commit([Set("/a", b"after")])
                            break
                        except (SessionExpired, ConnectionLost):
                            await trio.sleep(0.05)
                    while not (events and isinstance(events[-1], Changed) and "/a" in events[-1].paths):
                        events.append(await anext(changes))
                    while store.session_id != session and SessionBack() not in events:
                        events.append(await anext(changes))
                found = store.session_id
            # whether the server counts the time it stood still is its affair: the session is kept or replaced
            ends = [event for event in events if not isinstance(event, Changed)]
            assert ends == [SessionLost(), SessionBack()] * (len(ends) // 2)
            assert bool(ends) == (found != session)


async def test_an_ensemble_whose_leader_is_killed(tmp_path: Path) -> None:
    with ensemble(tmp_path) as servers:
        settings = ZooKeeperSettings(connect=servers.connect, session_timeout_ms=10_000, connection_timeout_ms=100_000)
        async with zookeeper_store(settings) as store:
            await made(store, "/a")
            await made(store, "/mine", ephemeral=True)
            session = store.session_id
            progress = [0, 0]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count_up, store, "/a", progress)
                await grows(progress)
                leader = await leader_of(servers)
                await in_thread(leader.kill)
                await grows(progress)
                await in_thread(leader.start)
                paused = await leader_of(servers)
                paused.pause()
                await grows(progress)
                paused.resume()
                await grows(progress)
                nursery.cancel_scope.cancel()
            node = await store.get("/a")
            assert node is not None
            assert 0 <= node.version - progress[0] <= progress[1] + 1
            if store.session_id == session:
                assert await store.get("/mine") is not None


JAAS = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };\n'


def acls(server: ZooKeeper, path: str) -> list[tuple[int, str, str]]:
    """The access list of a node, asked by the one who may: kazoo's own client with the login."""
    from kazoo.client import KazooClient

    options = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
    client = KazooClient(server.connect, timeout=60, sasl_options=options)
    client.start(120)
    try:
        return [(acl.perms, acl.id.scheme, acl.id.id) for acl in client.get_acls(path)[0]]
    finally:
        client.stop()
        client.close()


async def test_a_login_and_access_lists(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS)
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    options = [f"-Djava.security.auth.login.config={jaas}"]
    with zookeeper(tmp_path / "server", config=provider, java_options=options) as server:
        plain = patient(f"{server.connect}/kafka")
        login = patient(plain.connect, sasl=Login("kafka", "secret"), set_acl=True)
        async with zookeeper_store(login) as store, zookeeper_store(plain) as stranger:
            await store.commit([Create("/brokers"), Create("/config"), Create("/config/users"), Create("/consumers")])
            await store.commit([Create("/config/users/u", b"salt"), Create("/brokers/1", b"open", ephemeral=True)])
            node = await stranger.get("/brokers/1")
            assert node is not None
            assert node.data == b"open"
            with pytest.raises(AccessDenied) as denied:
                await stranger.commit([Check("/brokers", -1), Create("/brokers/2")])
            assert (denied.value.index, denied.value.path) == (1, "/brokers/2")
            with pytest.raises(AccessDenied):
                await stranger.get("/config/users/u")
            with pytest.raises(AccessDenied):
                async with stranger.changes(["/config/users"]):
                    raise AssertionError
            await stranger.commit([Create("/consumers/old")])
            secure, world = (31, "sasl", "kafka"), (1, "world", "anyone")
            for path, expected in (
                ("/kafka", [secure, world]),
                ("/kafka/brokers/1", [secure, world]),
                ("/kafka/config/users/u", [secure]),
                ("/kafka/consumers", [(31, "world", "anyone")]),
            ):
                found: list[object] = []
                await in_thread(lambda path=path, found=found: found.extend(acls(server, path)))
                assert found == expected, path
            await in_thread(server.kill)
            await in_thread(server.start)
            with trio.fail_after(120):  # logged in again on the next connection
                try:
                    await store.commit([Set("/config/users/u", b"pepper", 0)])
                except ConnectionLost:
                    with suppress(VersionMoved):  # it was done
                        await store.commit([Set("/config/users/u", b"pepper", 0)])
                node = await store.get("/config/users/u")
            assert node is not None
            assert node.version == 1
        wrong = patient(server.connect, sasl=Login("kafka", "wrong"))
        with pytest.raises(StoreFailed, match="refuses our login"):
            async with zookeeper_store(wrong):
                raise AssertionError


def write_pem(path: Path, certificate: trustme.LeafCert) -> str:
    """Key and certificates in one file; the key in the form that Java reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(text + b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    return str(path)


async def test_tls(tmp_path: Path) -> None:
    ours, strange = trustme.CA(), trustme.CA()
    trusted, untrusted = tmp_path / "ca.pem", tmp_path / "other.pem"
    ours.cert_pem.write_to_path(trusted)
    strange.cert_pem.write_to_path(untrusted)
    server_identity = write_pem(tmp_path / "server.pem", ours.issue_cert("localhost"))
    identity = write_pem(tmp_path / "broker.pem", ours.issue_cert("broker.example"))
    (port,) = free_ports(1)
    config = {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": server_identity,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(trusted),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    with zookeeper(tmp_path / "server", config=config) as server:

        def context(authority: Path = trusted) -> ssl.SSLContext:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.load_verify_locations(authority)
            made.load_cert_chain(identity)
            return made

        def settings(host: str, tls: ssl.SSLContext) -> ZooKeeperSettings:
            return patient(f"{host}:{port}", set_acl=True, tls=tls, shows_certificate=True)

        async with zookeeper_store(settings("localhost", context())) as store:
            await store.commit([Create("/t", b"x" * 5000), *(Create(f"/t/{number}") for number in range(2000))])
            with trio.fail_after(120):  # many answers in one TLS record: none is left lying
                nodes = await store.get_many([f"/t/{number}" for number in range(2000)])
            assert all(nodes)
            async with store.changes(["/t"]) as changes:
                await store.commit([Set("/t/7", b"1")])
                assert await anext(changes) == Changed(frozenset({"/t/7"}))
        async with zookeeper_store(patient(server.connect)) as stranger:
            with pytest.raises(AccessDenied):
                await stranger.commit([Set("/t", b"")])
        lax = context()
        lax.check_hostname, lax.minimum_version = False, ssl.TLSVersion.TLSv1_3
        async with zookeeper_store(settings("127.0.0.1", lax)):
            pass
        for host, wrong, why in (
            ("localhost", context(untrusted), "certificate verify failed"),
            ("127.0.0.1", context(), "IP address mismatch"),
        ):
            handler = OneThread(wrong, 60)
            with pytest.raises(ssl.SSLCertVerificationError, match=why):
                await trio.to_thread.run_sync(handler.create_connection, ("127.0.0.1", port), host)
            assert why in (handler.trouble or "")
