"""Authentication at another broker, as part of connecting: SaslHandshake 1, SaslAuthenticate 1, then any request.

`logging_in(connect, credentials)` is a `Connect` over another one, which carries the bytes, encrypted or not. Where the
other broker limits the session (KIP-368), it returns a `SessionStream`, which re-authenticates after nine tenths of its
lifetime; otherwise the stream itself.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.server.network.peers import Connect, PeerError, PeerRefused, SessionStream, read_response
from barnabas.server.security.sasl.client import ClientCredentials, ServerRefused, begin

if TYPE_CHECKING:
    from barnabas.replication import Endpoint

CLIENT_ID: Final = "barnabas"
VERSION: Final = 1
RENEW_AFTER: Final = 0.9
"""The part of the session's lifetime after which to re-authenticate."""
_NONCE_BYTES: Final = 24


CurrentCredentials = Callable[[], Awaitable[ClientCredentials]]
"""Credentials that change, such as tokens. Raises PeerError where there are none."""
Credentials = ClientCredentials | CurrentCredentials


def logging_in(connect: Connect, credentials: Credentials) -> Connect:
    """A `Connect` that logs in to endpoints whose listener has SASL. Raises OSError, PeerError as `connect` does, and
    PeerError for a log-in that fails.
    """

    async def connect_and_log_in(endpoint: Endpoint) -> trio.abc.Stream:
        stream = await connect(endpoint)
        if not endpoint.security_protocol.startswith("SASL_"):
            return stream
        done = False
        try:
            session = _Session(stream, credentials, f"{endpoint.host}:{endpoint.port}")
            await session.renew()
            done = True
        finally:
            if not done:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)
        return stream if session.renew_at == float("inf") else session

    return connect_and_log_in


class _Session(SessionStream):
    def __init__(self, carrier: trio.abc.Stream, credentials: Credentials, where: str) -> None:
        self._carrier = carrier
        self._credentials = credentials
        self._correlation_id = 0
        self.where = where
        self.renew_at = float("inf")

    @property
    def carrier(self) -> trio.abc.Stream:
        return self._carrier

    async def renew(self) -> None:
        try:
            lifetime_ms = await self._log_in()
        except (EOFError, DecodeError) as error:
            raise PeerError(f"{self.where}: log-in failed: {error}") from None
        self.renew_at = trio.current_time() + lifetime_ms / 1000 * RENEW_AFTER if lifetime_ms else float("inf")

    async def _log_in(self) -> int:
        """How long the session lasts, in ms; 0: without limit. Raises PeerError, EOFError, DecodeError."""
        credentials = self._credentials
        if not isinstance(credentials, ClientCredentials):
            credentials = await credentials()
        mechanism = credentials.mechanism
        handshake = await self._ask(SaslHandshakeRequest(mechanism=mechanism))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            why = f"{ErrorCode.of(handshake.error_code).name}, it offers {offered}"
            raise PeerRefused(f"{self.where}: it does not accept {mechanism}: {why}")
        login = begin(credentials, b64encode(secrets.token_bytes(_NONCE_BYTES)))
        token: bytes | None = login.first()
        lifetime_ms = 0
        while token is not None:
            answer = await self._ask(SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                why = answer.error_message or ErrorCode.of(answer.error_code).name
                raise PeerRefused(f"{self.where}: it rejects the log-in of {credentials.user}: {why}")
            lifetime_ms = answer.session_lifetime_ms
            try:
                token = login.answer(bytes(answer.auth_bytes))
            except ServerRefused as error:
                raise PeerError(f"{self.where}: it cannot be trusted: {error}") from None
        return lifetime_ms

    async def _ask(self, request: Any) -> Any:
        self._correlation_id += 1
        key = ApiKey(request.__description__.api_key)
        await self._carrier.send_all(request_frame(VERSION, self._correlation_id, CLIENT_ID, request))
        body = await read_response(self._carrier, self._correlation_id)
        _, offset = parse_response_header(key, VERSION, body)
        return decode(response_class(key), VERSION, body, offset)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._carrier.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._carrier.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._carrier.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._carrier.aclose()
