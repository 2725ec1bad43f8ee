"""How long tokens last, who moves their end and where to, and whom the settings give tokens."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.security.principals import Principal
from barnabas.server.security.tokens.model import DelegationToken
from barnabas.server.security.tokens.rules import TIME_MAX, TokenRules, expired
from barnabas.server.security.tokens.settings import token_settings

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
RULES = TokenRules(max_lifetime_ms=1000, expiry_time_ms=100)
NOW = 5_000


def token(max_lifetime_ms: int = -1, rules: TokenRules = RULES) -> DelegationToken:
    return rules.issued("id", ALICE, CAROL, [BOB], max_lifetime_ms, NOW)


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


@pytest.mark.parametrize(
    ("asked", "max_ms", "expiry_ms"),
    [
        (-1, NOW + 1000, NOW + 100),
        (0, NOW + 1000, NOW + 100),
        (500, NOW + 500, NOW + 100),
        (50, NOW + 50, NOW + 50),
        (1001, NOW + 1000, NOW + 100),
        (TIME_MAX, NOW + 1000, NOW + 100),
    ],
)
def test_a_new_token_lasts_as_long_as_asked_for_and_allowed(asked: int, max_ms: int, expiry_ms: int) -> None:
    assert token(asked) == DelegationToken("id", ALICE, CAROL, (BOB,), NOW, max_ms, expiry_ms)


def test_the_longest_times_are_no_longer_than_a_time_can_be() -> None:
    made = token(rules=TokenRules(TIME_MAX, TIME_MAX))
    assert (made.max_ms, made.expiry_ms) == (TIME_MAX, TIME_MAX)


@pytest.mark.parametrize("who", ["renewer", "owner"])
def test_only_users_have_tokens(who: str) -> None:
    group = Principal("Group", "ops")
    with refused(ErrorCode.INVALID_PRINCIPAL_TYPE):
        RULES.issued("id", group if who == "owner" else ALICE, ALICE, [group] if who == "renewer" else [], 0, NOW)


@pytest.mark.parametrize("caller", [ALICE, BOB])
@pytest.mark.parametrize(
    ("period_ms", "expiry_ms"), [(-1, 150), (0, 150), (10, 60), (100, 150), (101, 150), (TIME_MAX, 150)]
)
def test_owner_and_renewers_renew(caller: Principal, period_ms: int, expiry_ms: int) -> None:
    assert RULES.renewed(token(), caller, period_ms, NOW + 50).expiry_ms == NOW + expiry_ms


def test_nothing_goes_beyond_the_last_possible_end() -> None:
    short = token(120)
    assert RULES.renewed(short, ALICE, -1, NOW + 50).expiry_ms == short.max_ms
    after = expired(short, ALICE, TIME_MAX, NOW + 50)
    assert after is not None
    assert after.expiry_ms == short.max_ms


@pytest.mark.parametrize("caller", [ALICE, BOB])
def test_owner_and_renewers_let_it_expire(caller: Principal) -> None:
    after = expired(token(), caller, 700, NOW + 50)
    assert after is not None
    assert after.expiry_ms == NOW + 750  # beyond the usual time
    at_once = expired(token(), caller, 0, NOW + 50)
    assert at_once is not None
    assert at_once.expiry_ms == NOW + 50
    assert expired(token(), caller, -1, NOW + 50) is None


def test_a_token_lives_through_the_millisecond_of_its_end() -> None:
    assert not token().is_expired(NOW + 100)
    assert token().is_expired(NOW + 101)
    assert RULES.renewed(token(), ALICE, 0, NOW + 100).expiry_ms == NOW + 200
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        RULES.renewed(token(), ALICE, 0, NOW + 101)
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        expired(token(), ALICE, 0, NOW + 101)
    assert expired(token(), ALICE, -1, NOW + 101) is None


def test_others_may_not() -> None:
    for caller in (CAROL, Principal("Group", "alice")):  # who had it made is nobody special
        for period_ms in (-1, 0, 10):
            with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
                expired(token(), caller, period_ms, NOW)
            with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
                RULES.renewed(token(), caller, period_ms, NOW)
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):  # which comes first where it is renewed
        RULES.renewed(token(), CAROL, 0, NOW + 101)
    with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        expired(token(), CAROL, 0, NOW + 101)


def test_the_settings() -> None:
    assert token_settings(BrokerConfig.from_values({})) is None
    assert token_settings(BrokerConfig.from_values({"delegation.token.secret.key": ""})) is None
    old = {"delegation.token.master.key": "old"}
    made = token_settings(BrokerConfig.from_values(old))
    assert made is not None
    assert (made.secret_key, made.rules, made.check_interval_s) == ("old", TokenRules(604_800_000, 86_400_000), 3600)
    values = {
        **old,
        "delegation.token.secret.key": "new",
        "delegation.token.max.lifetime.ms": "1",
        "delegation.token.expiry.time.ms": "2",
        "delegation.token.expiry.check.interval.ms": "1500",
    }
    made = token_settings(BrokerConfig.from_values(values))
    assert made is not None
    assert (made.secret_key, made.rules, made.check_interval_s) == ("new", TokenRules(1, 2), 1.5)
    assert "new" not in repr(made)


def test_which_principals_a_token_concerns() -> None:
    made = token()
    for one, renews in ((ALICE, True), (BOB, True), (CAROL, False), (Principal("User", "dan"), False)):
        assert made.may_renew(one) is renews
        assert made.concerns({one}) is (one.name != "dan")
    assert made.concerns({Principal("User", "dan"), CAROL})  # who had it made
    assert not made.concerns(set())
