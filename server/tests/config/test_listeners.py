"""Settings of one listener, and the rules of which listener is for whom."""

import pytest

from barnabas.server.config import changes, describe
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.listener_rules import why_not_control_plane, why_not_mechanism
from barnabas.server.config.problems import SettingsRefused, shown
from barnabas.server.settings import BROKER
from barnabas.server.settings.listener_keys import (
    OWN_OF_MECHANISM,
    PER_LISTENER,
    PER_MECHANISM,
    parse_listener_key,
    row_of,
)

TWO = {
    "listeners": "IN://:1,OUT_SIDE://:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT_SIDE:PLAINTEXT",
    "inter.broker.listener.name": "in",
}


def two() -> BrokerConfig:
    return BrokerConfig.from_values(TWO)


def made(values: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_values({**TWO, **values})


def problem(values: dict[str, str]) -> str:
    with pytest.raises(SettingsRefused) as caught:
        BrokerConfig.from_values(values)
    (text,) = caught.value.problems
    return text


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "listener", "mechanism", "name"),
    [
        ("listener.name.in.ssl.client.auth", "in", "", "ssl.client.auth"),
        ("listener.name.out_side.plain.sasl.jaas.config", "out_side", "plain", "sasl.jaas.config"),
        (
            "listener.name.in.scram-sha-256.connections.max.reauth.ms",
            "in",
            "scram-sha-256",
            "connections.max.reauth.ms",
        ),
    ],
)
def test_keys_come_apart(key: str, listener: str, mechanism: str, name: str) -> None:
    parsed = parse_listener_key(key)
    assert parsed is not None
    assert (parsed.listener, parsed.mechanism, parsed.row.name) == (listener, mechanism, name)
    assert parsed.why_not() is None
    assert row_of(key) is BROKER[name]


@pytest.mark.parametrize("key", ["ssl.client.auth", "listener.name.in", "listener.name.in.such.key", "x"])
def test_what_is_no_key_of_a_listener(key: str) -> None:
    assert parse_listener_key(key) is None


def test_what_can_be_set_for_one_of_them_is_in_the_table() -> None:
    assert set(BROKER) >= PER_LISTENER | PER_MECHANISM
    assert OWN_OF_MECHANISM < PER_MECHANISM
    assert "ssl.truststore.certificates" in PER_LISTENER
    assert "sasl.mechanism.inter.broker.protocol" not in PER_LISTENER


def test_secrets_of_a_listener_are_not_shown() -> None:
    assert shown("listener.name.in.ssl.truststore.certificates", "hunter2") == "[hidden]"
    assert shown("listener.name.in.plain.sasl.jaas.config", "hunter2") == "[hidden]"
    assert shown("listener.name.in.ssl.client.auth", "none") == "none"


# -- views -----------------------------------------------------------------------------------------


def test_a_listener_sees_its_own_value_before_the_broker_s() -> None:
    config = made({"num.network.threads": "3", "listener.name.in.num.network.threads": "7"})
    assert config.get_int("num.network.threads") == 3
    assert config.for_listener("IN").get_int("num.network.threads") == 7
    assert config.for_listener("in").own == {"num.network.threads"}
    assert config.for_listener("OUT_SIDE").get_int("num.network.threads") == 3
    assert config.for_listener("OUT_SIDE").own == frozenset()
    assert config.for_listener("IN").get_str("ssl.client.auth") == "none"
    assert config.for_listener("out_side").name == "OUT_SIDE"


def test_a_listener_that_is_not_there_has_no_view() -> None:
    with pytest.raises(KeyError):
        two().for_listener("PLAINTEXT")


def test_a_listener_s_value_beats_the_broker_s_of_a_higher_layer() -> None:
    config = made({"listener.name.in.num.network.threads": "7"}).with_dynamic(
        cluster={"num.network.threads": "8", "listener.name.out_side.num.network.threads": "9"},
        broker={"num.network.threads": "10"},
    )
    assert config.get_int("num.network.threads") == 10
    assert config.for_listener("IN").get_int("num.network.threads") == 7
    assert config.for_listener("OUT_SIDE").get_int("num.network.threads") == 9
    again = config.with_dynamic(broker={"listener.name.in.num.network.threads": "11"})
    assert again.for_listener("IN").get_int("num.network.threads") == 11
    assert again.for_listener("OUT_SIDE").get_int("num.network.threads") == 3


def test_a_mechanism_has_its_own_login_or_none() -> None:
    config = made(
        {"listener.name.in.plain.connections.max.reauth.ms": "0", "listener.name.in.plain.sasl.login.class": ""}
    )
    plain = config.for_listener("IN").for_mechanism("PLAIN")
    assert plain.get_int("connections.max.reauth.ms") == 0
    assert all(plain.get_value(key) is None for key in OWN_OF_MECHANISM)
    with pytest.raises(KeyError):
        config.for_listener("IN").for_mechanism("PLAN")


def test_what_a_mechanism_sees_of_the_listener() -> None:
    """The table refuses most of these values today, so the view is asked itself."""
    view = two().for_listener("IN")
    values = {**view._values, "sasl.jaas.config": "of the listener", "connections.max.reauth.ms": 5}
    mechanisms = {"plain": {"sasl.jaas.config": "of plain"}, "oauthbearer": {"connections.max.reauth.ms": 6}}
    listener = type(view)(values, "IN", frozenset(), mechanisms)
    assert listener.for_mechanism("PLAIN").get_str("sasl.jaas.config") == "of plain"
    assert listener.for_mechanism("plain").get_int("connections.max.reauth.ms") == 5
    assert listener.for_mechanism("OAUTHBEARER").get_optional_str("sasl.jaas.config") is None
    assert listener.for_mechanism("OAUTHBEARER").get_int("connections.max.reauth.ms") == 6


# -- warnings and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (
            "listener.name.other.ssl.client.auth",
            "is ignored: no listener is called OTHER, there is IN, OUT_SIDE",
        ),
        ("listener.name.IN.ssl.client.auth", "is ignored: the listener's name must be in lower case, in"),
        ("listener.name.in.such.key", "is unknown and is ignored"),
    ],
)
def test_keys_of_listeners_that_count_for_nothing_are_said(key: str, what: str) -> None:
    (notice,) = made({key: "none"}).notices
    assert notice.text == f"{key}=none {what}"


def test_a_login_without_a_listener_is_said() -> None:
    (notice,) = made({"plain.sasl.jaas.config": "hunter2"}).notices
    assert notice.text == (
        "plain.sasl.jaas.config=[hidden] is unknown and is ignored "
        "(is listener.name.<listener>.plain.sasl.jaas.config meant?)"
    )


def test_refusals_name_what_is_allowed() -> None:
    assert problem({**TWO, "listener.name.in.ssl.client.auth": "sometimes"}) == (
        "listener.name.in.ssl.client.auth=sometimes is refused: it must be one of required, requested, none."
    )
    assert problem({**TWO, "listener.name.in.plan.sasl.jaas.config": "x"}) == (
        "listener.name.in.plan.sasl.jaas.config=[hidden] is refused: plan is no mechanism; allowed: one of gssapi, "
        "plain, scram-sha-256, scram-sha-512, oauthbearer."
    )


def test_bad_values_of_a_listener_that_are_stored_are_left_out() -> None:
    config = two().with_dynamic(
        broker={"listener.name.in.ssl.client.auth": "sometimes", "listener.name.in.max.connections.per.ip": "5"}
    )
    assert config.for_listener("IN").get_str("ssl.client.auth") == "none"
    assert [notice.key for notice in config.notices] == [
        "listener.name.in.ssl.client.auth",
        "listener.name.in.max.connections.per.ip",
    ]


# -- changes and descriptions ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "per_broker", "why"),
    [
        ("listener.name.in.ssl.keystore.location", "/k", False, "for one broker by its id"),
        ("listener.name.in.ssl.client.auth", "sometimes", True, "required, requested, none"),
        ("listener.name.in.sasl.server.max.receive.size", "5", True, "cannot be changed while the listener is open"),
    ],
)
def test_changes_of_a_listener_s_settings_follow_the_rules_of_the_key(
    key: str, text: str, per_broker: bool, why: str
) -> None:
    with pytest.raises(Exception, match=why) as caught:
        changes.check_broker(two(), {key: text}, per_broker=per_broker)
    assert key in str(caught.value)


def test_changes_that_are_allowed() -> None:
    changes.check_broker(two(), {"listener.name.in.ssl.keystore.location": "/k"}, per_broker=True)
    changes.check_broker(two(), {"listener.name.in.num.network.threads": "5"}, per_broker=False)


def test_a_listener_s_setting_is_described_with_what_is_behind_it() -> None:
    key = "listener.name.in.num.network.threads"
    config = made({key: "7", "num.network.threads": "4"}).with_dynamic(broker={key: "8"})
    (entry,) = describe.broker_entries(config, [key])
    assert (entry.name, entry.value, entry.source, entry.sensitive) == (key, "8", describe.Source.DYNAMIC_BROKER, False)
    assert [(one.name, one.value) for one in entry.synonyms] == [
        (key, "8"),
        (key, "7"),
        ("num.network.threads", "4"),
        ("num.network.threads", "3"),
    ]
    (entry,) = describe.broker_entries(
        made({"listener.name.in.plain.sasl.jaas.config": ""}), ["listener.name.in.plain.sasl.jaas.config"]
    )
    assert (entry.value, entry.sensitive) == (None, True)


# -- which listener is for whom --------------------------------------------------------------------


def test_the_controller_s_listener() -> None:
    config = made({"control.plane.listener.name": "out_side"})
    assert (config.inter_broker_listener, config.control_plane_listener) == ("IN", "OUT_SIDE")
    assert config.controller_listener == "OUT_SIDE"
    assert two().control_plane_listener is None
    assert two().controller_listener == "IN"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"control.plane.listener.name": "in"},
            "control.plane.listener.name=in is refused: it must be another one than the listener between brokers, IN; "
            "allowed: OUT_SIDE.",
        ),
        (
            {"control.plane.listener.name": "CONTROLLER"},
            "control.plane.listener.name=CONTROLLER is refused: it must be one of the advertised listeners: IN, "
            "OUT_SIDE.",
        ),
        (
            {"control.plane.listener.name": "OUT_SIDE", "advertised.listeners": "IN://a:1"},
            "control.plane.listener.name=OUT_SIDE is refused: it must be one of the advertised listeners: IN.",
        ),
        (
            {"advertised.listeners": "OUT_SIDE://a:1"},
            "inter.broker.listener.name=in is refused: it must be one of the advertised listeners: OUT_SIDE.",
        ),
        (
            {"inter.broker.listener.name": "", "security.inter.broker.protocol": "PLAINTEXT"},
            "security.inter.broker.protocol=PLAINTEXT is refused: no advertised listener has this name; set "
            "inter.broker.listener.name to one of IN, OUT_SIDE.",
        ),
        (
            {"security.inter.broker.protocol": "TLS"},
            "security.inter.broker.protocol=TLS is refused: it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, "
            "SASL_SSL.",
        ),
    ],
)
def test_listeners_that_cannot_be(values: dict[str, str], text: str) -> None:
    assert text in problem({**TWO, **values}).split("\n")[0]


def test_alone_the_controller_s_listener_has_nothing_left() -> None:
    assert why_not_control_plane("A", ["A"], "A") == (
        "it must be another one than the listener between brokers, A; allowed: nothing (leave it out)"
    )
    assert why_not_control_plane("A", ["A", "B"], "B") is None


def test_brokers_log_in_with_a_mechanism_that_their_listener_enables() -> None:
    assert why_not_mechanism("PLAINTEXT", "GSSAPI", (), "IN") is None
    assert why_not_mechanism("SASL_SSL", "PLAIN", ("PLAIN", "GSSAPI"), "IN") is None
    assert why_not_mechanism("SASL_PLAINTEXT", "PLAIN", ("GSSAPI",), "IN") == (
        "it must be one of sasl.enabled.mechanisms of the listener between brokers, IN; allowed: GSSAPI"
    )
