"""What settings and login files say about log-ins: mechanisms of each listener, entries, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.jaas import JaasError, parse_module
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.config.sasl import BrokerLogin, SaslSettings, sasl_settings
from barnabas.server.settings.sasl import VALIDATORS

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENERS = {
    "listeners": "CLIENTS://localhost:0,BROKERS://localhost:0,PLAINTEXT://localhost:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} required user_alice="secret-a" user_bob="secret;b";',
    "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def settings(**changes: str | None) -> SaslSettings:
    """LISTENERS with changes, whose keys are written with `_` for `.`; None takes a key away."""
    values = {**LISTENERS, **{key.replace("_", "."): value for key, value in changes.items()}}
    config = BrokerConfig.from_values({key: value for key, value in values.items() if value is not None})
    return sasl_settings(config)


def refused(**changes: str | None) -> str:
    with pytest.raises(SettingsRefused) as caught:
        settings(**changes)
    text = "\n".join(caught.value.problems)
    assert "secret" not in text
    return text


def test_each_listener_has_its_own_mechanisms() -> None:
    found = settings(connections_max_reauth_ms="9", listener_name_clients_plain_connections_max_reauth_ms="5")
    assert found.listeners.keys() == {"CLIENTS", "BROKERS"}
    clients, brokers = found.listeners["CLIENTS"], found.listeners["BROKERS"]
    assert [(one.name, one.max_reauth_ms) for one in clients.mechanisms] == [("SCRAM-SHA-256", 9), ("PLAIN", 5)]
    assert [(one.name, one.max_reauth_ms) for one in brokers.mechanisms] == [("SCRAM-SHA-512", 9)]
    assert clients.mechanisms[1].users == {"alice": "secret-a", "bob": "secret;b"}
    assert (clients.protocol, clients.max_receive_bytes) == ("SASL_PLAINTEXT", 524288)
    assert found.has_scram
    assert found.between_brokers is None, "a broker alone logs in to nobody"
    assert "secret" not in repr(found)


def test_without_sasl_nothing_is_asked() -> None:
    found = sasl_settings(BrokerConfig.from_values({}))
    assert (found.listeners, found.between_brokers, found.has_scram) == ({}, None, False)


def test_kerberos_is_refused_by_name() -> None:
    why = "sasl.enabled.mechanisms=GSSAPI is refused: listener BROKERS uses SASL, and GSSAPI (Kerberos) is not "
    assert why in refused(listener_name_brokers_sasl_enabled_mechanisms=None)
    assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER" in refused(
        sasl_enabled_mechanisms="GSSAPI,PLAIN", listener_name_brokers_sasl_enabled_mechanisms=None
    )
    assert "Kerberos" in refused(sasl_kerberos_service_name="kafka")


def test_plain_needs_users() -> None:
    what = "listener.name.clients.plain.sasl.jaas.config"
    for options in (None, 'username="secret-a" password="secret-b"', 'user_alice=""'):
        text = options and f"{PLAIN} required {options};"
        said = refused(listener_name_clients_plain_sasl_jaas_config=text)
        assert what in said
        assert "it names no users; allowed: PlainLoginModule required user_<name>" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret", "it ends too early"),
        (f'{PLAIN} required user_a="secret"', "it ends without ;"),
        (f'{PLAIN} user_a="secret";', "one of required, requisite, sufficient, optional is expected"),
        (f'{PLAIN} required user_a="secret;', "a quote or comment does not end"),
        (f'{PLAIN} required user_a="s1"; {PLAIN} required user_b="s2";', "one login module is allowed"),
        (f'{SCRAM} required user_a="secret";', "it is of org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("username=admin password=secret", "a word is expected"),
    ],
)
def test_entries_that_are_none(text: str, why: str) -> None:
    said = refused(listener_name_clients_plain_sasl_jaas_config=text)
    assert why in said
    assert "listener.name.clients.plain.sasl.jaas.config=[hidden] is refused" in said


def test_a_single_entry() -> None:
    module = parse_module(f"{SCRAM} REQUIRED username='a' password=b;\n")
    assert (module.name, module.options) == (SCRAM, {"username": "a", "password": "b"})
    with pytest.raises(JaasError):
        parse_module("")


def test_the_login_file_stands_in(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(
        f'KafkaServer {{ {SCRAM} required username="u" password="p"; {PLAIN} required user_carol="secret-c"; }};\n'
        f'other.KafkaServer {{ {PLAIN} required user_dave="secret-d"; }};\n'
    )
    given = {"listener_name_clients_plain_sasl_jaas_config": None, "java_security_auth_login_config": str(file)}

    def users() -> object:
        return settings(**given).listeners["CLIENTS"].mechanisms[1].users

    assert users() == {"carol": "secret-c"}
    file.write_text(file.read_text().replace("other.", "clients."))
    assert users() == {"dave": "secret-d"}
    own = settings(java_security_auth_login_config=str(file)).listeners["CLIENTS"].mechanisms[1]
    assert own.users.keys() == {"alice", "bob"}, "the setting comes first"
    file.write_text("KafkaServer { secret")
    assert "it is no login configuration" in refused(**given)
    file.unlink()
    assert "it cannot be read: No such file or directory" in refused(**given)


BETWEEN = {
    "zookeeper_connect": "localhost:2181",
    "broker_id": "1",
    "inter_broker_listener_name": "BROKERS",
    "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512",
    "listener_name_brokers_scram-sha-512_sasl_jaas_config": f'{SCRAM} required username="kafka" password="secret-k";',
}


def test_brokers_log_in_to_each_other() -> None:
    found = settings(**BETWEEN).between_brokers
    assert found == BrokerLogin("SCRAM-SHA-512", "kafka", "secret-k")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(("option", "by_token"), [("true", True), ("TRUE", True), ("false", False)])
def test_brokers_may_log_in_with_a_delegation_token(option: str, by_token: bool) -> None:
    key = "listener_name_brokers_scram-sha-512_sasl_jaas_config"
    found = settings(**{**BETWEEN, key: f"{str(BETWEEN[key])[:-1]} tokenauth={option};"}).between_brokers
    assert found == BrokerLogin("SCRAM-SHA-512", "kafka", "secret-k", by_token)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sasl_mechanism_inter_broker_protocol": None}, "sasl.mechanism.inter.broker.protocol=GSSAPI is refused"),
        ({"sasl_mechanism_inter_broker_protocol": "PLAIN"}, "sasl.mechanism.inter.broker.protocol=PLAIN is refused"),
        ({"sasl_mechanism_inter_broker_protocol": "OAUTHBEARER"}, "brokers do not log in with OAUTHBEARER"),
        (
            {"listener_name_brokers_scram-sha-512_sasl_jaas_config": None},
            "brokers log in to each other with it; allowed: ScramLoginModule required username",
        ),
        (
            {"listener_name_brokers_scram-sha-512_sasl_jaas_config": f'{SCRAM} required username="kafka";'},
            "brokers log in to each other with it",
        ),
    ],
)
def test_brokers_that_cannot_log_in(changes: dict[str, str | None], why: str) -> None:
    assert why in refused(**{**BETWEEN, **changes})


def oauth(tmp_path: Path, **changes: str | None) -> dict[str, str | None]:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys":[]}')
    return {
        "listener_name_clients_sasl_enabled_mechanisms": "OAUTHBEARER",
        "listener_name_clients_oauthbearer_sasl_server_callback_handler_class": VALIDATORS[0],
        "sasl_oauthbearer_jwks_endpoint_url": f"file://{keys}",
        **changes,
    }


def test_oauthbearer(tmp_path: Path) -> None:
    pytest.importorskip("joserfc")
    (found,) = (
        settings(
            **oauth(
                tmp_path,
                sasl_oauthbearer_expected_audience="kafka,second",
                listener_name_clients_oauthbearer_sasl_oauthbearer_expected_issuer="https://issuer",
                sasl_oauthbearer_jwks_endpoint_refresh_ms="5000",
            )
        )
        .listeners["CLIENTS"]
        .mechanisms
    )
    assert found.oauth is not None
    assert (found.oauth.issuer, found.oauth.audiences) == ("https://issuer", {"kafka", "second"})
    assert (found.oauth.refresh_s, found.oauth.backoff_s, found.oauth.backoff_max_s) == (5, 0.1, 10)
    assert (found.oauth.subject_claim, found.oauth.scope_claim, found.oauth.skew_s) == ("sub", "scope", 30)
    settings(**oauth(tmp_path, listener_name_clients_oauthbearer_sasl_server_callback_handler_class=VALIDATORS[1]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"listener_name_clients_oauthbearer_sasl_server_callback_handler_class": None},
            "without it Apache Kafka accepts tokens that nobody has signed; allowed: org.apache.kafka.",
        ),
        ({"listener_name_clients_oauthbearer_sasl_server_callback_handler_class": "my.Own"}, "Java classes"),
        ({"sasl_oauthbearer_jwks_endpoint_url": None}, "the keys that tokens are signed with"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://host/keys"}, "must be an http://, https:// or file:// URL"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https:///keys"}, "must be an http://, https:// or file:// URL"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///no/such/file"}, "there is no such file"),
    ],
)
def test_oauthbearer_that_cannot_be(tmp_path: Path, changes: dict[str, str | None], why: str) -> None:
    assert why in refused(**oauth(tmp_path, **changes))


def test_a_java_class_for_another_mechanism() -> None:
    what = f"listener.name.clients.plain.sasl.server.callback.handler.class={VALIDATORS[0]} is refused: Java classes"
    assert what in refused(listener_name_clients_plain_sasl_server_callback_handler_class=VALIDATORS[0])
