"""The server's end of one log-in, without IO: frames go in; frames, and at the end a session or a failure, come out.

    step = Authenticator(rules, served, host).frame(frame, now_ms)
    match step: Continue(answer) | Authenticated(answer, session, …) | Failed(reason, answer, delayed)

| state | accepted | anything else |
| --- | --- | --- |
| START | ApiVersions, SaslHandshake | closed, no answer |
| NEGOTIATED, after a good ApiVersions | SaslHandshake | closed, no answer |
| FRAMED, after SaslHandshake 1 | SaslAuthenticate, any number | others: ILLEGAL_SASL_STATE in their form, closed |
| RAW, after SaslHandshake 0 | tokens, without headers in both directions | closed, no answer |
| AGAIN, to log in again | SaslHandshake | closed, no answer |
| ANOTHER_MECHANISM, of an open session | – | SaslAuthenticate is refused, all is closed |

An ApiVersions that is answered with an error may be repeated. A mechanism that is not enabled is answered with those
that are, and the connection closed. The answer to a failed log-in is sent when the connection is closed, after
a delay (`Failed.delayed`, connection.failed.authentication.delay.ms); what is no log-in at all ends at once.

A session ends (KIP-368) after connections.max.reauth.ms of the mechanism, or with the credentials if that is sooner;
to continue the client logs in again with the same mechanism, as the same principal.

Source: `SaslServerAuthenticator.java` (4.3). Different from there: a client that returns with another mechanism gets an
error that says so, and in the raw form wrong credentials of SCRAM wait for the delay, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decoder, encode, request_class
from barnabas.kproto.frame import RequestHeader, parse_request_header, response_frame
from barnabas.kproto.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from barnabas.server.security.principals import USER, Principal
from barnabas.server.security.sasl import AUTHENTICATE_VERSIONS, HANDSHAKE_VERSIONS
from barnabas.server.security.sasl.exchange import Challenge, Exchange, LoggedIn, NewExchange, Refused
from barnabas.server.security.session import Session


@dataclass(frozen=True, slots=True)
class MechanismRules:
    """`begin()`: a new log-in by this mechanism. `max_reauth_ms`: how long a session lasts, 0: without limit."""

    begin: NewExchange
    max_reauth_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """What holds for log-ins on one listener. `protocol`: SASL_PLAINTEXT or SASL_SSL. `mechanisms`: those enabled, in
    the order in which SaslHandshake lists them.
    """

    listener: str
    protocol: str
    mechanisms: Mapping[str, MechanismRules]


class Served(Protocol):
    """The APIs of this broker, as far as they matter before the log-in."""

    def api_versions(self, frame: memoryview) -> tuple[bytes, bool]:
        """The answer to an ApiVersions request, as a frame, and whether it says what is served. Raises DecodeError."""
        ...

    def refusal(self, frame: memoryview, code: ErrorCode) -> bytes | None:
        """The answer of a request's API that says `code`, as a frame; None where it has none."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Continue:
    """Send the frame `answer`, and wait for the client's next one."""

    answer: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Authenticated:
    """Send `answer`, if any; from now on this is `session`. `lifetime_ms`: how long; None: without limit."""

    answer: bytes
    session: Session
    mechanism: str
    lifetime_ms: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Failed:
    """Send `answer`, if any, and close. `delayed`: not at once, and read nothing more until then. `reason`: for the
    log.
    """

    reason: str
    answer: bytes = b""
    delayed: bool = True


Step = Continue | Authenticated | Failed


class _State(Enum):
    START = auto()
    NEGOTIATED = auto()
    FRAMED = auto()
    RAW = auto()
    AGAIN = auto()
    ANOTHER_MECHANISM = auto()
    OVER = auto()


class Authenticator:
    """See the module. `host`: the peer's address. `before`: how the peer has logged in already, if it does so again."""

    def __init__(self, rules: ListenerRules, served: Served, host: str, *, before: Authenticated | None = None) -> None:
        self._rules = rules
        self._served = served
        self._host = host
        self._before = before
        self._state = _State.START if before is None else _State.AGAIN
        self._mechanism = ""
        self._exchange: Exchange

    @property
    def is_over(self) -> bool:
        """It has ended, well or badly, and takes no more frames."""
        return self._state is _State.OVER

    def frame(self, frame: memoryview, now_ms: int) -> Step:
        """The next frame of the client, without its length. `now_ms`: wall clock."""
        assert self._state is not _State.OVER, "the log-in is over"
        step = self._step(frame, now_ms)
        if not isinstance(step, Continue):
            self._state = _State.OVER
        return step

    def _step(self, frame: memoryview, now_ms: int) -> Step:
        if self._state is _State.RAW:
            return self._raw(bytes(frame), now_ms)
        try:
            header = parse_request_header(frame)
            if self._state in (_State.FRAMED, _State.ANOTHER_MECHANISM):
                return self._authenticate(frame, header, now_ms)
            return self._open(frame, header)
        except DecodeError as error:
            return Failed(f"what it sends is no request: {error}", delayed=False)

    # -- before a mechanism is agreed on -----------------------------------------------------------------------------

    def _open(self, frame: memoryview, header: RequestHeader) -> Step:
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(frame, header)
        if header.api_key == ApiKey.API_VERSIONS and self._state is _State.START:
            answer, is_good = self._served.api_versions(frame)
            if is_good:
                self._state = _State.NEGOTIATED
            return Continue(answer)
        return Failed(f"a request of API {_name(header.api_key)} before it has logged in", delayed=False)

    def _handshake(self, frame: memoryview, header: RequestHeader) -> Step:
        if not HANDSHAKE_VERSIONS[0] <= header.api_version <= HANDSHAKE_VERSIONS[1]:
            return Failed(f"SaslHandshake v{header.api_version}, which is not served", delayed=False)
        mechanism = _decode(frame, header).mechanism
        response = SaslHandshakeResponse(mechanisms=list(self._rules.mechanisms))
        rules = self._rules.mechanisms.get(mechanism)
        if rules is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            why = f"mechanism {mechanism[:100]!r} is not enabled on listener {self._rules.listener}"
            return Failed(why, _encode(header, response))
        if self._before is not None and self._before.mechanism != mechanism:
            self._state = _State.ANOTHER_MECHANISM
        else:
            self._state = _State.FRAMED if header.api_version else _State.RAW
            self._exchange = rules.begin()
        self._mechanism = mechanism
        return Continue(_encode(header, response))

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _authenticate(self, frame: memoryview, header: RequestHeader, now_ms: int) -> Step:
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            why = f"a request of API {_name(header.api_key)} instead of SaslAuthenticate"
            answer = self._served.refusal(frame, ErrorCode.ILLEGAL_SASL_STATE)
            return Failed(why, delayed=False) if answer is None else Failed(why, answer)
        if not AUTHENTICATE_VERSIONS[0] <= header.api_version <= AUTHENTICATE_VERSIONS[1]:
            return Failed(f"SaslAuthenticate v{header.api_version}, which is not served", delayed=False)
        token = bytes(_decode(frame, header).auth_bytes)
        try:
            outcome = self._evaluate(token, now_ms)
        except Refused as error:
            said = error.said or f"{self._what} failed: these credentials are not valid for {self._mechanism}"
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=said, auth_bytes=b""
            )
            return Failed(self._why(error), _encode(header, response))
        response = SaslAuthenticateResponse(auth_bytes=outcome.answer)
        if isinstance(outcome, Challenge):
            return Continue(_encode(header, response))
        lifetime_ms = self._lifetime_ms(outcome, now_ms)
        if header.api_version >= 1:
            response.session_lifetime_ms = lifetime_ms or 0
        return self._passed(outcome, _encode(header, response), lifetime_ms)

    def _raw(self, token: bytes, now_ms: int) -> Step:
        try:
            outcome = self._evaluate(token, now_ms)
        except Refused as error:
            return Failed(self._why(error))
        answer = len(outcome.answer).to_bytes(4, "big") + outcome.answer
        if isinstance(outcome, Challenge):
            return Continue(answer)
        return self._passed(outcome, answer, self._lifetime_ms(outcome, now_ms))

    def _evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        """Raises Refused."""
        if self._state is _State.ANOTHER_MECHANISM:
            assert self._before is not None
            why = f"{self._mechanism} cannot take over a session of {self._before.mechanism}"
            raise Refused(why, said=f"{self._what} failed: {why}")
        outcome = self._exchange.evaluate(token, now_ms)
        if isinstance(outcome, LoggedIn) and self._before is not None:
            principal, before = Principal(USER, outcome.user), self._before.session.principal
            if principal != before:
                why = f"{principal} cannot take over the session of {before}"
                raise Refused(why, said=f"{self._what} failed: {why}")
        return outcome

    def _passed(self, outcome: LoggedIn, answer: bytes, lifetime_ms: int | None) -> Authenticated:
        rules = self._rules
        principal = Principal(USER, outcome.user)
        session = Session(principal, self._host, rules.listener, rules.protocol, token_authenticated=outcome.by_token)
        return Authenticated(answer, session, self._mechanism, lifetime_ms)

    def _lifetime_ms(self, outcome: LoggedIn, now_ms: int) -> int | None:
        limits = []
        max_reauth_ms = self._rules.mechanisms[self._mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if outcome.expires_ms is not None:
            limits.append(max(0, outcome.expires_ms - now_ms))
        return min(limits, default=None)

    @property
    def _what(self) -> str:
        return "Authentication" if self._before is None else "Re-authentication"

    def _why(self, error: Refused) -> str:
        return f"{self._what.lower()} by {self._mechanism} failed: {error}"


def _name(api_key: int) -> str:
    return ApiKey(api_key).name if api_key in ApiKey.__members__.values() else str(api_key)


_ROOM: Final = 4096
"""For the decoder: these requests have no arrays, and a token is a unit for each KiB."""


def _decode(frame: memoryview, header: RequestHeader) -> Any:
    """Raises DecodeError."""
    key = ApiKey(header.api_key)
    request, _ = decoder(request_class(key), header.api_version)(bytes(frame), header.body_offset, _ROOM)
    return request


def _encode(header: RequestHeader, response: Any) -> bytes:
    version = header.api_version
    parts = response_frame(header.api_key, version, header.correlation_id, [encode(response, version)])
    return b"".join(parts)  # type: ignore[arg-type]
