"""Log-ins over real sockets, through the reactor: the answer to a failure arrives before the connection ends, whatever
else the client has sent; strangers get nothing; and a token of OAUTHBEARER that a file of keys vouches for.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.network.sasl_rig import METADATA, VERSIONS, authenticate, handshake, log_in, sasl_broker
from barnabas.server.tests.network.tcp_rig import SECONDS, dialled, no_error_is_logged, reactor, sockets

__all__ = ["no_error_is_logged", "sockets"]


async def test_a_failure_is_read_before_the_end(tmp_path: Path) -> None:
    """With more requests behind it, which are not read: closing over them must not destroy the answer."""
    async with sasl_broker(tmp_path, connection_failed_authentication_delay_ms="30") as broker:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            async with dialled(broker) as client:
                with trio.fail_after(SECONDS):
                    answer = await log_in(client, mechanism, "alice", "wrong")
                    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                    with pytest.raises((EOFError, trio.BrokenResourceError)):
                        await client.receive_frame()
        async with dialled(broker) as client:
            with trio.fail_after(SECONDS):
                await handshake(client)
                for _ in range(50):
                    await client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
                answer = await client.receive(SaslAuthenticateRequest(), 2)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with trio.fail_after(SECONDS):
            while reactor(broker).connections:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_all_goes_well_in_small_pieces(tmp_path: Path) -> None:
    from barnabas.kproto.frame import request_frame

    token = b"\0alice\0secret-of-alice"
    said = b"".join(
        (
            request_frame(3, 1, "c", VERSIONS),
            request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="PLAIN")),
            request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=token)),
            request_frame(12, 4, "c", METADATA),
        )
    )
    async with sasl_broker(tmp_path) as broker, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            for at in range(0, len(said), 7):
                await client.stream.send_all(said[at : at + 7])
            assert (await client.receive(VERSIONS, 3)).error_code == 0
            assert (await client.receive(SaslHandshakeRequest(), 1)).error_code == 0
            assert (await client.receive(SaslAuthenticateRequest(), 2)).error_code == 0
            assert (await client.receive(METADATA, 12)).brokers


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0\0\0\4\0\3\0\1", b"\0" * 64]
)
async def test_strangers_get_nothing(tmp_path: Path, said: bytes) -> None:
    async with sasl_broker(tmp_path) as broker, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            await client.stream.send_all(said)
            try:
                assert await client.stream.receive_some(100) == b""
            except trio.BrokenResourceError:
                pass  # a reset


async def test_a_client_that_leaves_during_a_log_in_leaves_nothing(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as broker:
        for _ in range(10):
            async with dialled(broker) as client:
                await handshake(client)
                await client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
        with trio.fail_after(SECONDS):
            while reactor(broker).connections:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_token(tmp_path: Path) -> None:
    pytest.importorskip("joserfc")
    from joserfc import jwt
    from joserfc.jwk import ECKey

    from barnabas.server.settings.sasl import VALIDATORS

    key = ECKey.generate_key("P-256", {"kid": "k"})
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    now = int(time.time())

    def token(**claims: object) -> bytes:
        made = {"sub": "alice", "iat": now, "exp": now + 1000, "aud": "kafka", "iss": "us"} | claims
        return b"n,,\x01auth=Bearer " + jwt.encode({"alg": "ES256", "kid": "k"}, made, key).encode() + b"\x01\x01"

    settings = {
        "listeners": "CLIENTS://localhost:0,PLAINTEXT://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": VALIDATORS[0],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    (tmp_path / "data").mkdir()
    async with embedded_broker(tmp_path / "data", **settings) as broker:
        async with dialled(broker) as client:
            with trio.fail_after(SECONDS):
                await handshake(client, "OAUTHBEARER")
                before_ms = time.time() * 1000
                answer = await authenticate(client, token())
                assert (answer.error_code, answer.auth_bytes) == (0, b"")
                left_ms = (now + 1000) * 1000 - before_ms
                assert left_ms - (time.time() * 1000 - before_ms) - 10 <= answer.session_lifetime_ms <= left_ms + 10
                assert (await client.ask(METADATA, 12)).brokers
                await handshake(client, "OAUTHBEARER")
                answer = await authenticate(client, token(sub="bob"))
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        async with dialled(broker) as client:
            with trio.fail_after(SECONDS):
                await handshake(client, "OAUTHBEARER")
                answer = await authenticate(client, token(aud="others"))
                assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
                answer = await authenticate(client, b"\x01")
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert answer.error_message == '{"status":"invalid_token"}'
