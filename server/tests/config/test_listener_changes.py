"""What may change about the listeners of a broker that runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.kproto import KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.changes import check_broker
from barnabas.server.config.listener_changes import is_same, own_texts, why_not_now, with_listeners_of

STATIC = {
    "listeners": "PLAINTEXT://:1,IN://:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,OUT:SASL_SSL",
    "listener.name.in.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.out.sasl.enabled.mechanisms": "PLAIN",
}
BOTH = STATIC["listeners"]
MECHANISMS = "listener.name.in.sasl.enabled.mechanisms"


def config(static: Mapping[str, str] = STATIC, **dynamic: str) -> BrokerConfig:
    return BrokerConfig.from_values(static).with_checked(
        cluster={}, broker={key.replace("_", "."): text for key, text in dynamic.items()}
    )


@pytest.mark.parametrize(
    "after",
    [
        {},
        {"listeners": "PLAINTEXT://:1"},
        {"listeners": f"{BOTH},OUT://:3", "listener_name_out_sasl_enabled_mechanisms": "SCRAM-SHA-256"},
        {"advertised_listeners": "PLAINTEXT://example.org:77"},
        {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT"},
        {"listener_name_in_ssl_keystore_location": "/k", "listener_name_in_max_connections": "5"},
        {"listener_name_in_sasl_enabled_mechanisms": "PLAIN"},
        {"listener_name_out_connections_max_reauth_ms": "1000"},
        {"listeners": "PLAINTEXT://:1", "listener_name_in_sasl_enabled_mechanisms": "SCRAM-SHA-512"},
    ],
    ids=str,
)
def test_what_may(after: dict[str, str]) -> None:
    assert why_not_now(config(), config(**after)) is None
    check_broker(config(), {key.replace("_", "."): text for key, text in after.items()}, per_broker=True)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (
            {"listeners": "PLAINTEXT://:1,IN://:3"},
            "the address of IN cannot be changed while it is open, it is IN://:2; ",
        ),
        ({"listeners": "PLAINTEXT://:1,IN://a:2"}, "the address of IN cannot be changed"),
        (
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,IN:SSL"},
            "the protocol of IN cannot be changed while it is open, it is SASL_PLAINTEXT",
        ),
        (
            {"listener_name_in_sasl_enabled_mechanisms": "SCRAM-SHA-512"},
            f"{MECHANISMS}=SCRAM-SHA-512 is refused: it cannot be changed while the listener is open.",
        ),
        (
            {"listener_name_in_connections_max_reauth_ms": "1000"},
            "listener.name.in.connections.max.reauth.ms=1000 is refused: it cannot be changed while",
        ),
    ],
    ids=str,
)
def test_what_may_not(after: dict[str, str], why: str) -> None:
    assert why in (why_not_now(config(), config(**after)) or "")
    with pytest.raises(KafkaError, match="cannot be changed while"):
        check_broker(config(), {key.replace("_", "."): text for key, text in after.items()}, per_broker=True)


def test_a_setting_of_a_listener_cannot_be_taken_away_either() -> None:
    before = config(listeners=f"{BOTH},OUT://:3", listener_name_out_sasl_enabled_mechanisms="SCRAM-SHA-256")
    assert own_texts(before, "OUT") == {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    why = why_not_now(before, config(listeners=f"{BOTH},OUT://:3"))
    assert why == (
        "listener.name.out.sasl.enabled.mechanisms=PLAIN is refused: it cannot be changed while the listener is open."
    )
    assert why_not_now(before, config()) is None


def test_which_listeners_are_those_of_the_file() -> None:
    static = config()
    dynamic = config(
        listeners="PLAINTEXT://:1,IN://:2,OUT://:3",
        listener_name_in_ssl_keystore_location="/k",
        listener_name_plaintext_connections_max_reauth_ms="5",
    )
    assert [is_same(address, static, dynamic) for address in dynamic.listeners] == [False, True, False]


def test_the_rest_of_the_settings_can_change_alone() -> None:
    new = {"listeners": "X", "listener.name.x.max.connections": "5", "log.cleaner.backoff.ms": "7"}
    old = {"advertised.listeners": "Y", "log.cleaner.backoff.ms": "6"}
    assert with_listeners_of(new, old) == {"advertised.listeners": "Y", "log.cleaner.backoff.ms": "7"}


@pytest.mark.parametrize("others", [{"log.cleaner.min.compaction.lag.ms": "9"}, {}])
def test_stored_settings_that_need_each_other_are_taken_in_any_order(others: dict[str, str]) -> None:
    """Though one beside them is bad."""
    stored = {
        "advertised.listeners": "NEW://a:1,PLAINTEXT://b:1",
        "listeners": f"{BOTH},NEW://:3",
        "log.cleaner.max.compaction.lag.ms": "8",
        **others,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,NEW:PLAINTEXT",
    }
    found = BrokerConfig.from_values(STATIC).with_dynamic(broker=stored)
    assert [address.name for address in found.listeners] == ["PLAINTEXT", "IN", "NEW"]
    left_out = [notice.text for notice in found.notices if "left out" in notice.text]
    assert len(left_out) == len(others)
