"""SCRAM users for tests, and a client that may lie in each of its messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count

from barnabas.server.security.sasl.client import ClientCredentials, ClientLogin, begin
from barnabas.server.security.sasl.exchange import Challenge, LoggedIn
from barnabas.server.security.sasl.scram import ScramExchange
from barnabas.server.security.sasl.scram_credentials import ScramMechanism, make_credential
from barnabas.server.security.sasl.users import ScramUsers

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
PASSWORD = "secret-of-alice"


def users(secret: bytes = b"s" * 32) -> ScramUsers:
    """alice, with both mechanisms; `a=b,c` with an awkward name; old, with too few iterations."""
    made = ScramUsers(secret)
    made.put("alice", {one.value: _text(one, PASSWORD, b"salt of alice 0123456789", 4096) for one in ScramMechanism})
    made.put("a=b,c", {SHA_256.value: _text(SHA_256, "x", b"salt of abc 012345678901", 8192)})
    made.put("old", {SHA_256.value: _text(SHA_256, PASSWORD, b"salt", 4095)})
    return made


@cache
def _text(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> str:
    return make_credential(mechanism, password, salt, iterations).text()


def exchange(known: ScramUsers, mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    number = count()
    return ScramExchange(
        mechanism,
        lambda name, by_token, now_ms: None if by_token else known.find(mechanism, name),
        lambda name: known.stand_in(mechanism, name),
        lambda: b"server%d" % next(number),
    )


def client(user: str, password: str, mechanism: ScramMechanism = SHA_256, nonce: bytes = b"client") -> ClientLogin:
    return begin(ClientCredentials(mechanism.value, user, password), nonce)


def log_in(
    server: ScramExchange, login: ClientLogin, bend: Callable[[int, bytes], bytes] = lambda number, message: message
) -> LoggedIn:
    """All messages to and fro. `bend` changes what is said: 0 and 2 the client, 1 and 3 the server. Raises Refused,
    ServerRefused.
    """
    token = login.first()
    number = 0
    while True:
        outcome = server.evaluate(bend(number, token), 0)
        answer = login.answer(bend(number + 1, outcome.answer))
        number += 2
        if isinstance(outcome, LoggedIn):
            assert answer is None
            return outcome
        assert isinstance(outcome, Challenge)
        assert answer is not None
        token = answer
