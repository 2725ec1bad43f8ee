"""What an attacker tries at a log-in, over sockets: a weaker mechanism, messages that were overheard, large tokens."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.server.security.sasl.client import ClientCredentials, begin
from barnabas.server.testing import Client
from barnabas.server.tests.network.sasl_rig import METADATA, PASSWORD, authenticate, handshake, log_in, sasl_broker
from barnabas.server.tests.network.tcp_rig import SECONDS, dialled, no_error_is_logged, reactor, sockets

__all__ = ["no_error_is_logged", "sockets"]

ONLY_SCRAM = {"listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
TOKEN = b"\0alice\0" + PASSWORD.encode()


async def is_closed(client: Client) -> bool:
    """Within some seconds, and without another answer."""
    try:
        await client.receive_frame()
    except (EOFError, trio.BrokenResourceError):
        return True
    return False


async def test_a_mechanism_that_is_not_offered_is_not_taken(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path, **ONLY_SCRAM) as broker:
        with trio.fail_after(SECONDS):
            async with dialled(broker) as client:
                answer = await handshake(client, "PLAIN")
                assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                assert answer.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
                assert await is_closed(client)
            async with dialled(broker) as client:
                # A right password in the form of the other mechanism.
                assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
                assert (await authenticate(client, TOKEN)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert await is_closed(client)


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_mechanism_is_not_changed_on_the_way(tmp_path: Path, has_begun: bool) -> None:
    async with sasl_broker(tmp_path) as broker, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            assert (await handshake(client, "SCRAM-SHA-512")).error_code == 0
            if has_begun:
                answer = await authenticate(client, b"n,,n=alice,r=nonce")
                assert answer.error_code == 0
            answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await is_closed(client)


async def test_replayed_messages_do_not_log_in(tmp_path: Path) -> None:
    """The messages of a log-in that was right, byte by byte, with the same nonce of the client."""
    async with sasl_broker(tmp_path) as broker:
        with trio.fail_after(SECONDS):
            said = []
            async with dialled(broker) as client:
                assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
                login = begin(ClientCredentials("SCRAM-SHA-256", "alice", PASSWORD), b"nonce")
                token: bytes | None = login.first()
                while token is not None:
                    said.append(token)
                    token = login.answer((await authenticate(client, token)).auth_bytes)
                assert (await client.ask(METADATA, 12)).brokers
                # On the connection itself that is refused, too, and it stays.
                assert (await authenticate(client, said[0])).error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert (await client.ask(METADATA, 12)).brokers
            assert len(said) == 2
            for order in (said, said[1:], [said[0], said[0]]):
                async with dialled(broker) as client:
                    assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
                    codes = [(await authenticate(client, token)).error_code for token in order]
                    assert codes == [0] * (len(order) - 1) + [ErrorCode.SASL_AUTHENTICATION_FAILED]
                    assert await is_closed(client)
            async with dialled(broker) as client:
                assert (await log_in(client, "SCRAM-SHA-256")).error_code == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_large_tokens(tmp_path: Path, mechanism: str) -> None:
    """One that is allowed is refused for what it says; one that is not is not waited for."""
    async with sasl_broker(tmp_path) as broker:
        largest = 524_288
        with trio.fail_after(SECONDS):
            async with dialled(broker) as client:
                assert (await handshake(client, mechanism)).error_code == 0
                answer = await authenticate(client, b"x" * (largest - 100))
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            async with dialled(broker) as client:
                assert (await handshake(client, mechanism)).error_code == 0
                frame = request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=b"x" * largest))
                await client.stream.send_all(frame[:12])  # its length is enough
                assert await is_closed(client)
            async with dialled(broker) as client:
                await client.stream.send_all(struct.pack(">i", 2**31 - 1))
                assert await is_closed(client)
            while reactor(broker).connections:
                await trio.lowlevel.checkpoint()
