"""A client of one broker over a blocking socket: a request, its answer, the next one.

For a few requests outside of an event loop: `barnabas.Broker` and `barnabas.Cluster` in the process of their caller.
Works with any broker that speaks Kafka's protocol; no retries, no other brokers of the cluster, no OAUTHBEARER.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from base64 import b64encode
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ssl import SSLContext

    from barnabas.server.security.sasl.client import ClientCredentials

ANSWER_BYTES_MAX: Final = 100 * 1024 * 1024
_PORT: Final = 9092
_NONCE_BYTES: Final = 24


class NoAnswer(Exception):
    """The broker cannot be reached, does not answer in time, or is no broker; the message says which."""


class BlockingClient:
    """A connection to `bootstrap` (`host:port`), for one thread. timeout_s: for connecting, and for each answer. tls:
    the context for TLS; None: no TLS. credentials: to authenticate with.

    Raises NoAnswer, here and in `ask`; the connection cannot be used after that.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10.0,
        client_id: str = "barnabas",
        tls: SSLContext | None = None,
        credentials: ClientCredentials | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._correlation_id = 0
        host, port = split_bootstrap(bootstrap)
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise NoAnswer(f"no connection to {bootstrap}: {error.strerror or error}") from None
        if tls is not None:
            self._start_tls(tls, host)
        if credentials is not None:
            self._log_in(credentials)

    def _start_tls(self, tls: SSLContext, host: str) -> None:
        from barnabas.server.runtime.tls_words import why_no_tls

        try:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            self._socket.close()
            raise NoAnswer(f"TLS with {self.bootstrap} failed: {why_no_tls(error)}") from None

    def _log_in(self, credentials: ClientCredentials) -> None:
        from barnabas.server.security.sasl.client import ServerRefused, begin

        chosen = self.ask(SaslHandshakeRequest(mechanism=credentials.mechanism), 1)
        if chosen.error_code:
            offered = ", ".join(chosen.mechanisms) or "none"
            raise NoAnswer(f"{self.bootstrap} does not accept {credentials.mechanism}; it offers {offered}")
        login = begin(credentials, b64encode(secrets.token_bytes(_NONCE_BYTES)))
        token: bytes | None = login.first()
        while token is not None:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
            if answer.error_code:
                why = answer.error_message or ErrorCode.of(answer.error_code).name
                raise NoAnswer(f"{self.bootstrap} rejects the log-in of {credentials.user}: {why}")
            try:
                token = login.answer(bytes(answer.auth_bytes))
            except ServerRefused as error:
                raise NoAnswer(f"{self.bootstrap} cannot be trusted: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """The answer to `request`, in the same version."""
        self._correlation_id += 1
        key = ApiKey(request.__description__.api_key)
        frame = request_frame(version, self._correlation_id, self._client_id, request)
        deadline = time.monotonic() + self._timeout_s
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
            head = self._receive(4, deadline)
            size = int.from_bytes(head, "big")
            if head == b"HTTP":
                raise NoAnswer(f"{self.bootstrap} answers with HTTP, not with Kafka's protocol")
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise NoAnswer(f"{self.bootstrap} does not speak Kafka's protocol")
            frame = self._receive(size, deadline)
        except TimeoutError:
            raise NoAnswer(f"{self.bootstrap} did not answer {key.name} within {self._timeout_s:g} s") from None
        except OSError as error:
            raise NoAnswer(f"{self.bootstrap} did not answer {key.name}: {error.strerror or error}") from None
        try:
            correlation_id, offset = parse_response_header(key, version, frame)
            if correlation_id != self._correlation_id:
                raise DecodeError("the answer is to another request")
            return decode(response_class(key), version, frame, offset)
        except DecodeError as error:
            raise NoAnswer(f"{self.bootstrap} sent an unreadable answer to {key.name}: {error}") from None

    def _receive(self, size: int, deadline: float) -> bytes:
        """Exactly `size` bytes. Raises OSError, also when the connection ends before."""
        received = bytearray()
        while len(received) < size:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = self._socket.recv(min(size - len(received), 1 << 20))
            if not piece:
                raise OSError("the connection was closed")
            received += piece
        return bytes(received)


def split_bootstrap(text: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or a host alone. Raises NoAnswer for anything else."""
    if "/" in text:
        raise NoAnswer(f"{text[:80]!r} is not HOST:PORT but a URL")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = text, str(_PORT)
    host = host.strip("[]")
    if re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535 or not _can_be_looked_up(host):
        raise NoAnswer(f"{text[:80]!r} is not HOST:PORT")
    return host, int(port)


def _can_be_looked_up(host: str) -> bool:
    """`a..b`, bytes that are no text, and labels of 64 characters are no names: the resolver would raise."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False
