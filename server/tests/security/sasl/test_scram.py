"""SCRAM: the vectors of RFC 7677, another implementation as client (scramp), messages that are changed or repeated, and
that nothing tells a user from nobody.
"""

from __future__ import annotations

import base64
import random

import pytest

from barnabas.server.security.sasl.client import ServerRefused
from barnabas.server.security.sasl.exchange import Challenge, LoggedIn, Refused
from barnabas.server.security.sasl.scram import ScramExchange
from barnabas.server.security.sasl.scram_credentials import ScramLogin, ScramMechanism, make_credential
from barnabas.server.security.sasl.scram_messages import escape, parse_server_first
from barnabas.server.tests.security.sasl.scram_rig import PASSWORD, SHA_256, SHA_512, client, exchange, log_in, users


def test_the_example_of_rfc_7677() -> None:
    kept = make_credential(SHA_256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    server = ScramExchange(
        SHA_256, lambda *asked: ScramLogin("user", kept), lambda name: kept, lambda: b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0)
    assert isinstance(first, Challenge)
    assert first.answer == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = server.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", 0
    )
    assert isinstance(last, LoggedIn)
    assert last.answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.user == "user"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_our_own_client_and_server(mechanism: ScramMechanism) -> None:
    outcome = log_in(exchange(users(), mechanism), client("alice", PASSWORD, mechanism))
    assert (outcome.user, outcome.expires_ms, outcome.by_token) == ("alice", None, False)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_another_implementation_as_client(mechanism: ScramMechanism) -> None:
    scramp = pytest.importorskip("scramp")
    login = scramp.ScramClient([mechanism.value], "alice", PASSWORD)
    server = exchange(users(), mechanism)
    first = server.evaluate(login.get_client_first().encode(), 0)
    login.set_server_first(first.answer.decode())
    last = server.evaluate(login.get_client_final().encode(), 0)
    login.set_server_final(last.answer.decode())  # raises if the server has not proved itself
    assert isinstance(last, LoggedIn)


def test_a_name_with_comma_and_equals_sign() -> None:
    assert log_in(exchange(users()), client("a=b,c", "x")).user == "a=b,c"


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("alice", "secret-of-bob", "wrong password of 'alice'"),
        ("alice", "", "wrong password of 'alice'"),
        ("mallory", PASSWORD, "unknown user 'mallory'"),
        ("old", PASSWORD, "the credential of 'old' has fewer than 4096 iterations"),
    ],
)
def test_a_rejected_client_learns_nothing_before_the_proof(user: str, password: str, reason: str) -> None:
    server, login = exchange(users()), client(user, password)
    first = server.evaluate(login.first(), 0)
    assert isinstance(first, Challenge)
    proof = login.answer(first.answer)
    assert proof is not None
    with pytest.raises(Refused) as caught:
        server.evaluate(proof, 0)
    assert str(caught.value) == reason
    assert caught.value.said is None


def test_a_user_that_there_is_not_looks_like_one_each_time() -> None:
    known = users()

    def shown(name: str, asked: object = known) -> tuple[bytes, int]:
        answer = exchange(asked).evaluate(b"n,,n=%b,r=x" % escape(name), 0)  # type: ignore[arg-type]
        first = parse_server_first(answer.answer)
        return first.salt, first.iterations

    nobody = shown("mallory")
    assert nobody == shown("mallory")
    assert nobody == shown("mallory", users()), "another broker of the cluster, or after a restart"
    assert nobody[0] != shown("mallory2")[0]
    assert nobody[0] != shown("mallory", users(b"another secret"))[0]
    shapes = {(len(salt), iterations) for salt, iterations in map(shown, ("alice", "a=b,c"))}
    assert {(len(salt), iterations) for salt, iterations in (shown(f"nobody{n}") for n in range(50))} == shapes
    known.put("carol", {SHA_256.value: make_credential(SHA_256, "y", b"salt of carol 0123456789", 4096).text()})
    assert shown("mallory") == nobody, "a new user like others changes nothing"


def test_any_other_authorization_id_is_refused() -> None:
    for name in (b"alice", b"mallory"):
        with pytest.raises(Refused) as caught:
            exchange(users()).evaluate(b"n,a=bob,n=" + name + b",r=x", 0)
        assert caught.value.said == "Authentication failed: the authorization id is not the one of who logs in"
    server = exchange(users())
    assert isinstance(server.evaluate(b"n,a=alice,n=alice,r=x", 0), Challenge)


def test_the_channel_binding_repeats_the_header_with_the_authorization_id() -> None:
    server, login = exchange(users()), client("alice", PASSWORD)
    first = server.evaluate(b"n,a=alice," + login.first()[3:], 0)
    with pytest.raises(Refused, match="channel binding"):
        server.evaluate(login.answer(first.answer) or b"", 0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,r=x,n=alice",
        b"n,,n=al=ice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=al\xc3\xa4ce,r=x",
        b"n,,n=alice,r=x\n",
        b"n,,n=alice,r=x,1=2",
        b"n,,n=alice,r=x,a=",
        b"n,,n=alice,r=x,",
        b"n,a=,n=alice,r=x",
        b"n,,n=al\0ice,r=x",
        b"," * 100_000,
        b"n,,n=" + b"=2C" * 100_000,
    ],
)
def test_what_is_no_first_message(message: bytes) -> None:
    with pytest.raises(Refused, match="no client-first message"):
        exchange(users()).evaluate(message, 0)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "no client-final"),
        (b"n,,n=alice,r=x", "no client-final"),
        (b"c=biws,r=clientserver0", "no client-final"),
        (b"c=biws,r=clientserver0,p=" + b"A" * 44, "wrong password"),
        (b"c=biws,r=clientserver0,p=AAAA", "wrong password"),
        (b"c=biws,r=clientserver0,p=", "wrong password"),
        (b"c=biws,r=clientserver0,p=AAA", "not base64"),
        (b"c=biws,r=client,p=AAAA", "nonce"),
        (b"c=biws,r=clientserver1,p=AAAA", "nonce"),
        (b"c=biws,r=clientserver0x,p=AAAA", "nonce"),
        (b"c=eSws,r=clientserver0,p=AAAA", "channel binding"),
        (b"c=,r=clientserver0,p=AAAA", "channel binding"),
    ],
)
def test_what_is_no_good_final_message(message: bytes, why: str) -> None:
    server = exchange(users())
    server.evaluate(client("alice", PASSWORD).first(), 0)
    with pytest.raises(Refused, match=why):
        server.evaluate(message, 0)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_no_message_may_be_changed_in_a_single_place(number: int) -> None:
    """By a man in the middle: each changed byte is noticed, by the server or by the client."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)

    def bend(which: int, message: bytes) -> bytes:
        if which != number:
            return message
        # The last letter of base64 before its padding has bits that count for nothing.
        at = rng.randrange(len(message.rstrip(b"=")) - 1)
        return message[:at] + bytes([message[at] ^ rng.randrange(1, 256)]) + message[at + 1 :]

    for _ in range(150):
        with pytest.raises((Refused, ServerRefused)):
            print(
                "let through, seed", seed, log_in(exchange(users(), SHA_512), client("alice", PASSWORD, SHA_512), bend)
            )


def test_a_log_in_that_was_overheard_cannot_be_repeated() -> None:
    said: list[bytes] = []
    known = users()
    # Every log-in has a nonce of the server's own.
    nonces = iter((b"one", b"two"))
    servers = [
        ScramExchange(
            SHA_256,
            lambda name, *rest: known.find(SHA_256, name),
            lambda name: known.stand_in(SHA_256, name),
            lambda: next(nonces),
        )
        for _ in range(2)
    ]

    def overhear(number: int, message: bytes) -> bytes:
        said.append(message)
        return message

    log_in(servers[0], client("alice", PASSWORD), overhear)
    assert isinstance(servers[1].evaluate(said[0], 0), Challenge)
    with pytest.raises(Refused, match="nonce"):
        servers[1].evaluate(said[2], 0)


def test_the_messages_of_one_log_in_do_not_come_in_another_order() -> None:
    server, login = exchange(users()), client("alice", PASSWORD)
    first = server.evaluate(login.first(), 0)
    with pytest.raises(Refused, match="no client-final"):
        server.evaluate(login.first(), 0)
    with pytest.raises(Refused, match="no client-first"):
        exchange(users()).evaluate(login.answer(first.answer) or b"", 0)


def test_a_delegation_token_is_looked_up_as_one() -> None:
    asked: list[tuple[str, bool, int]] = []
    kept = make_credential(SHA_256, "hmac", b"salt", 4096)

    def find(name: str, by_token: bool, now_ms: int) -> ScramLogin | None:
        asked.append((name, by_token, now_ms))
        return ScramLogin("owner", kept, 5000, True) if by_token else None

    server = ScramExchange(SHA_256, find, lambda name: kept, lambda: b"s")
    server.evaluate(b"n,,n=id,r=x,tokenauth=TRUE,other=1", 17)
    assert asked == [("id", True, 17)]


@pytest.mark.parametrize(
    ("number", "message", "why"),
    [
        (1, b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (1, b"r=client,s=c2FsdA==,i=4096", "nonce"),
        (1, b"r=clientx,s=c2FsdA==,i=4095", "4095 iterations"),
        (1, b"r=clientx,s=c2FsdA==,i=1000001", "1000001 iterations"),
        (1, b"r=clientx,s=c2FsdA,i=4096", "base64"),
        (1, b"e=other-error", "no server-first"),
        (3, b"v=AAAA", "does not know"),
        (3, b"e=invalid-proof", "refuses"),
        (3, b"", "no server-final"),
    ],
)
def test_a_server_that_is_none(number: int, message: bytes, why: str) -> None:
    with pytest.raises(ServerRefused, match=why):
        log_in(exchange(users()), client("alice", PASSWORD), lambda which, sent: message if which == number else sent)
