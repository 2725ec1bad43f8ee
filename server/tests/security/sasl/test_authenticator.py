"""The log-in on a connection: every state with every kind of frame, as a table; then lifetimes, coming back, and noise.

How Apache Kafka behaves was read in its `SaslServerAuthenticator` (4.3.1).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decode, encode, response_class
from barnabas.kproto.frame import parse_request_header, parse_response_header, request_frame, response_frame
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.server.security.sasl.authenticator import (
    Authenticated,
    Authenticator,
    Continue,
    Failed,
    ListenerRules,
    MechanismRules,
    Step,
)
from barnabas.server.security.sasl.exchange import Challenge, LoggedIn
from barnabas.server.security.sasl.plain import PlainExchange, PlainUsers
from barnabas.server.security.session import Session
from barnabas.server.tests.security.sasl.scram_rig import PASSWORD, client, exchange, users

USERS = PlainUsers({"alice": PASSWORD, "bob": "secret-of-bob"})
RIGHT, WRONG = b"\0alice\0secret-of-alice", b"\0alice\0secret-of-nobody"


class Ending:
    """A mechanism whose credentials end."""

    expires_ms: int | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        return LoggedIn(token.decode(), b"", self.expires_ms)


def rules(max_reauth_ms: int = 0, ending: type[Ending] = Ending) -> ListenerRules:
    return ListenerRules(
        "CLIENTS",
        "SASL_PLAINTEXT",
        {
            "PLAIN": MechanismRules(lambda: PlainExchange(USERS), max_reauth_ms),
            "SCRAM-SHA-256": MechanismRules(lambda: exchange(users()), max_reauth_ms),
            "ENDING": MechanismRules(ending, max_reauth_ms),
        },
    )


class Served:
    """Answers as the dispatcher does: ApiVersions 0-4, a refusal for what can be read."""

    def api_versions(self, frame: memoryview) -> tuple[bytes, bool]:
        header = parse_request_header(frame)
        version = header.api_version if 0 <= header.api_version <= 4 else 0
        is_good = header.api_version <= 4 and header.client_id != "bad"
        code = ErrorCode.NONE if is_good else ErrorCode.UNSUPPORTED_VERSION
        answer = encode(ApiVersionsResponse(error_code=code), version)
        return b"".join(response_frame(18, version, header.correlation_id, [answer])), is_good  # type: ignore[arg-type]

    def refusal(self, frame: memoryview, code: ErrorCode) -> bytes | None:
        header = parse_request_header(frame)
        if header.api_key != ApiKey.METADATA:
            return None
        return b"METADATA refused with " + code.name.encode()


FRAMES: dict[str, bytes] = {
    "versions": request_frame(0, 1, "c", ApiVersionsRequest()),
    "versions 3": request_frame(3, 1, "c", ApiVersionsRequest()),
    "versions 99": request_frame(0, 1, "c", ApiVersionsRequest())[:6] + b"\0\x63\0\0\0\1\xff\xff\0",
    "versions bad": request_frame(3, 1, "bad", ApiVersionsRequest()),
    "handshake 0": request_frame(0, 2, "c", SaslHandshakeRequest(mechanism="PLAIN")),
    "handshake 1": request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="PLAIN")),
    "handshake 2": b"\0\0\0\0" + b"\0\x11\0\2\0\0\0\2\xff\xff\0\5PLAIN",
    "handshake GSSAPI": request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="GSSAPI")),
    "handshake plain": request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="plain")),
    "handshake SCRAM": request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="SCRAM-SHA-256")),
    "right 0": request_frame(0, 3, "c", SaslAuthenticateRequest(auth_bytes=RIGHT)),
    "right 1": request_frame(1, 3, "c", SaslAuthenticateRequest(auth_bytes=RIGHT)),
    "right 2": request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=RIGHT)),
    "right 3": b"\0\0\0\0" + b"\0\x24\0\3\0\0\0\3\xff\xff\0\1\0",
    "wrong 2": request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=WRONG)),
    "cut off": request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=RIGHT))[:-3],
    "metadata": request_frame(9, 4, "c", MetadataRequest()),
    "unknown API": b"\0\0\0\0" + b"\x7f\xff\0\0\0\0\0\1\xff\xff",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "short": b"\0\0\0\0" + b"\0\x12",
    "raw right": b"\0\0\0\0" + RIGHT,
    "raw wrong": b"\0\0\0\0" + WRONG,
}

# How each state is come to.
STATES: dict[str, tuple[str, ...]] = {
    "START": (),
    "START after a bad ApiVersions": ("versions 99",),
    "NEGOTIATED": ("versions",),
    "FRAMED": ("versions", "handshake 1"),
    "FRAMED at once": ("handshake 1",),
    "RAW": ("handshake 0",),
}

GO, IN = "go on", "in"
CLOSED, LATER = "closed at once", "closed later, without answer"
NO_MECHANISM, BAD_CREDENTIALS, WRONG_API = "mechanisms are named", "58", "34 of that API"

BEFORE = {
    "handshake 0": GO,
    "handshake 1": GO,
    "handshake 2": CLOSED,
    "handshake GSSAPI": NO_MECHANISM,
    "handshake plain": NO_MECHANISM,
    "handshake SCRAM": GO,
    **dict.fromkeys(("right 0", "right 1", "right 2", "right 3", "wrong 2", "cut off", "metadata"), CLOSED),
    **dict.fromkeys(("unknown API", "http", "short", "raw right", "raw wrong"), CLOSED),
}
VERSIONS = ("versions", "versions 3", "versions 99", "versions bad")
START = BEFORE | dict.fromkeys(VERSIONS, GO)
NEGOTIATED = BEFORE | dict.fromkeys(VERSIONS, CLOSED)
FRAMED = {
    **dict.fromkeys(FRAMES, CLOSED),
    **dict.fromkeys(("right 0", "right 1", "right 2"), IN),
    "wrong 2": BAD_CREDENTIALS,
    "metadata": WRONG_API,
}
RAW = dict.fromkeys(FRAMES, LATER) | {"raw right": IN}
TABLE = {
    "START": START,
    "START after a bad ApiVersions": START,
    "NEGOTIATED": NEGOTIATED,
    "FRAMED": FRAMED,
    "FRAMED at once": FRAMED,
    "RAW": RAW,
}


def give(machine: Authenticator, frame: bytes, now_ms: int = 0) -> Step:
    return machine.frame(memoryview(frame)[4:], now_ms)


def come_to(state: str, given: ListenerRules | None = None, before: Authenticated | None = None) -> Authenticator:
    machine = Authenticator(given or rules(), Served(), "10.0.0.1", before=before)
    for name in STATES[state]:
        assert isinstance(give(machine, FRAMES[name]), Continue)
    return machine


def answer(step: Step, key: ApiKey, version: int) -> Any:
    frame = step.answer
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, offset = parse_response_header(key, version, frame, 4)
    assert correlation_id in (2, 3)
    return decode(response_class(key), version, frame, offset)


def verdict(step: Step) -> str:
    if isinstance(step, Continue):
        return GO
    if isinstance(step, Authenticated):
        return IN
    if not step.answer:
        return LATER if step.delayed else CLOSED
    assert step.delayed
    if step.answer.startswith(b"METADATA"):
        assert step.answer == b"METADATA refused with ILLEGAL_SASL_STATE"
        return WRONG_API
    try:
        response = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    except DecodeError:
        response = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.auth_bytes == b""
        return BAD_CREDENTIALS
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "ENDING"]
    return NO_MECHANISM


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("state", STATES)
def test_every_state_with_every_frame(state: str, name: str) -> None:
    machine = come_to(state)
    step = give(machine, FRAMES[name])
    assert verdict(step) == TABLE[state][name]
    assert machine.is_over == (not isinstance(step, Continue))
    if isinstance(step, Failed):
        assert step.reason
        assert "secret" not in step.reason
        assert b"secret" not in step.answer


@pytest.mark.parametrize("version", [0, 1])
def test_a_good_handshake_names_the_mechanisms(version: int) -> None:
    response = answer(give(come_to("START"), FRAMES[f"handshake {version}"]), ApiKey.SASL_HANDSHAKE, version)
    assert (response.error_code, response.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "ENDING"])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_which_principal_is_authenticated(version: int) -> None:
    step = give(come_to("FRAMED"), FRAMES[f"right {version}"])
    assert isinstance(step, Authenticated)
    assert str(step.session.principal) == "User:alice"
    assert (step.session.host, step.session.listener) == ("10.0.0.1", "CLIENTS")
    assert (step.session.protocol, step.session.token_authenticated) == ("SASL_PLAINTEXT", False)
    assert (step.mechanism, step.lifetime_ms) == ("PLAIN", None)
    response = answer(step, ApiKey.SASL_AUTHENTICATE, version)
    assert (response.error_code, response.error_message, response.auth_bytes) == (0, "", b"")
    assert response.session_lifetime_ms == 0


def test_the_raw_form_of_plain_is_answered_with_an_empty_frame() -> None:
    step = give(come_to("RAW"), FRAMES["raw right"])
    assert isinstance(step, Authenticated)
    assert step.answer == b"\0\0\0\0"


@pytest.mark.parametrize("is_raw", [False, True])
def test_scram_takes_two_rounds(is_raw: bool) -> None:
    machine = Authenticator(rules(), Served(), "h")
    give(machine, request_frame(0 if is_raw else 1, 2, "c", SaslHandshakeRequest(mechanism="SCRAM-SHA-256")))
    login = client("alice", PASSWORD)

    def round_trip(token: bytes) -> tuple[Step, bytes]:
        if is_raw:
            step = give(machine, len(token).to_bytes(4, "big") + token)
            return step, step.answer[4:]
        step = give(machine, request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=token)))
        response = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
        assert (response.error_code, response.session_lifetime_ms) == (0, 0)
        return step, response.auth_bytes

    first, challenge = round_trip(login.first())
    assert isinstance(first, Continue)
    last, verifier = round_trip(login.answer(challenge) or b"")
    assert isinstance(last, Authenticated)
    assert login.answer(verifier) is None


def test_wrong_password_and_unknown_user_look_alike() -> None:
    said = []
    for name, password in (("alice", "secret-of-nobody"), ("mallory", PASSWORD)):
        machine = Authenticator(rules(), Served(), "h")
        give(machine, FRAMES["handshake SCRAM"])
        login = client(name, password)
        token: bytes | None = login.first()
        while True:
            step = give(machine, request_frame(2, 3, "c", SaslAuthenticateRequest(auth_bytes=token or b"")))
            response = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
            if isinstance(step, Failed):
                break
            token = login.answer(response.auth_bytes)
        said.append((response.error_code, response.error_message, len(step.answer)))
        assert name in step.reason
    assert said[0] == said[1]
    assert said[0][1] == "Authentication failed: these credentials are not valid for SCRAM-SHA-256"


def ending(expires_ms: int | None) -> type[Ending]:
    return type("EndingThen", (Ending,), {"expires_ms": expires_ms})


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms"),
    [
        (0, None, None),
        (5000, None, 5000),
        (0, 17_000, 7000),
        (5000, 17_000, 5000),
        (9000, 17_000, 7000),
        (0, 10_000, 0),
        (0, 3000, 0),
        (5000, 3000, 0),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_how_long_a_session_lasts(
    max_reauth_ms: int, expires_ms: int | None, lifetime_ms: int | None, version: int
) -> None:
    machine = Authenticator(rules(max_reauth_ms, ending(expires_ms)), Served(), "h")
    give(machine, request_frame(1, 2, "c", SaslHandshakeRequest(mechanism="ENDING")))
    step = give(machine, request_frame(version, 3, "c", SaslAuthenticateRequest(auth_bytes=b"alice")), now_ms=10_000)
    assert isinstance(step, Authenticated)
    assert step.lifetime_ms == lifetime_ms
    told = answer(step, ApiKey.SASL_AUTHENTICATE, version).session_lifetime_ms
    assert told == (0 if version == 0 else lifetime_ms or 0)


# -- coming back ---------------------------------------------------------------------------------------------------


def logged_in(mechanism: str = "PLAIN", user: str = "alice") -> Authenticated:
    from barnabas.server.security.principals import Principal

    return Authenticated(b"", Session(Principal("User", user), "h", "CLIENTS", "SASL_PLAINTEXT"), mechanism, 1000)


def again(before: Authenticated) -> Authenticator:
    return Authenticator(rules(), Served(), "h", before=before)


@pytest.mark.parametrize("name", [name for name in FRAMES if not name.startswith("handshake")])
def test_reauthentication_begins_with_a_handshake(name: str) -> None:
    assert verdict(give(again(logged_in()), FRAMES[name])) == CLOSED


@pytest.mark.parametrize(("handshake", "token"), [("handshake 1", "right 2"), ("handshake 0", "raw right")])
def test_coming_back(handshake: str, token: str) -> None:
    machine = again(logged_in())
    assert isinstance(give(machine, FRAMES[handshake]), Continue)
    step = give(machine, FRAMES[token])
    assert isinstance(step, Authenticated)
    assert str(step.session.principal) == "User:alice"


def test_coming_back_with_wrong_credentials() -> None:
    machine = again(logged_in())
    give(machine, FRAMES["handshake 1"])
    step = give(machine, FRAMES["wrong 2"])
    assert isinstance(step, Failed)
    assert step.reason.startswith("re-authentication by PLAIN failed")


@pytest.mark.parametrize(("handshake", "token"), [("handshake 1", "right 2"), ("handshake 0", "raw right")])
def test_coming_back_as_another(handshake: str, token: str) -> None:
    machine = again(logged_in(user="bob"))
    give(machine, FRAMES[handshake])
    step = give(machine, FRAMES[token])
    assert isinstance(step, Failed)
    assert step.delayed
    if token == "right 2":
        response = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
        assert response.error_message == (
            "Re-authentication failed: User:alice cannot take over the session of User:bob"
        )
    else:
        assert step.answer == b""


def test_coming_back_with_another_mechanism() -> None:
    machine = again(logged_in("SCRAM-SHA-256"))
    step = give(machine, FRAMES["handshake 1"])
    assert isinstance(step, Continue)
    assert answer(step, ApiKey.SASL_HANDSHAKE, 1).error_code == 0
    step = give(machine, FRAMES["right 2"])
    assert isinstance(step, Failed)
    response = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == ("Re-authentication failed: PLAIN cannot take over a session of SCRAM-SHA-256")


def test_coming_back_with_a_mechanism_that_is_not_enabled() -> None:
    assert verdict(give(again(logged_in()), FRAMES["handshake GSSAPI"])) == NO_MECHANISM


# -- noise ---------------------------------------------------------------------------------------------------------


def test_whatever_comes_there_is_a_verdict() -> None:
    """Frames of the table, whole, cut, or with bytes changed, in any order."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print("seed", seed)
    for _ in range(3000):
        machine = Authenticator(rules(), Served(), "h", before=logged_in() if rng.random() < 0.3 else None)
        while not machine.is_over:
            frame = bytearray(rng.choice(list(FRAMES.values()))[4:])
            for _ in range(rng.choice((0, 0, 1, 3))):
                if frame:
                    frame[rng.randrange(len(frame))] = rng.randrange(256)
            if rng.random() < 0.2:
                frame = frame[: rng.randrange(len(frame) + 1)]
            try:
                step = machine.frame(memoryview(frame), 0)
            except DecodeError:
                pytest.fail(f"seed {seed}")
            if isinstance(step, Failed):
                assert b"secret" not in step.answer
                break
