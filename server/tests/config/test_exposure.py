"""What a file of settings leaves open, and that one which leaves nothing open is not warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.server.cli.check import check

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
JAAS = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_alice="a";'
}
SASL = {
    "listeners": "SASL_PLAINTEXT://localhost:9092,LOCAL://localhost:9093",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,LOCAL:PLAINTEXT",
    "inter.broker.listener.name": "LOCAL",
    **AUTHORIZER,
}
SSL = {"listeners": "SSL://:9092", "security.inter.broker.protocol": "SSL", **AUTHORIZER}
PLAINTEXT = {"listeners": "PLAINTEXT://:9092"}


def warnings(directory: Path, settings: dict[str, str], *, mode: int = 0o600) -> list[str]:
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    file.chmod(mode)
    found = check(str(file))
    assert found.refusals == ()
    return list(found.warnings)


def one(directory: Path, settings: dict[str, str], *, mode: int = 0o600) -> str:
    (text,) = warnings(directory, settings, mode=mode)
    return text


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "PLAINTEXT://localhost:9092"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://[::1]:9092"},
        {**PLAINTEXT, **AUTHORIZER},
        {**SSL, "ssl.client.auth": "required"},
        {**SSL, "ssl.client.auth": "required", "super.users": "User:ANONYMOUS;User:CN=admin"},
        {**SSL, "ssl.client.auth": "required", "super.users": "User:CN=admin"},
        {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-512", "super.users": "User:admin"},
        {"listeners": "PLAINTEXT://localhost:9092", "allow.everyone.if.no.acl.found": "true"},
    ],
    ids=str,
)
def test_what_leaves_nothing_open(tmp_path: Path, settings: dict[str, str]) -> None:
    assert warnings(tmp_path, settings) == []


def test_passwords_in_clear_text(tmp_path: Path) -> None:
    text = one(tmp_path, {**SASL, **JAAS, "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN"})
    assert text == (
        "listener SASL_PLAINTEXT://localhost:9092: PLAIN over SASL_PLAINTEXT sends passwords in clear text; "
        "SASL_SSL does not"
    )


def test_tokens_in_clear_text_and_keys_that_are_fetched_without_tls(tmp_path: Path) -> None:
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "http://keys.example/jwks",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common."
        "security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    }
    tokens, keys = warnings(tmp_path, settings)
    assert "OAUTHBEARER over SASL_PLAINTEXT sends tokens in clear text" in tokens
    assert keys.startswith("sasl.oauthbearer.jwks.endpoint.url=http://keys.example/jwks is read without TLS")
    local = {**settings, "sasl.oauthbearer.jwks.endpoint.url": "http://localhost/jwks"}
    assert warnings(tmp_path, local) == [tokens]


@pytest.mark.parametrize("listener", ["PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://10.0.0.1:9092"])
def test_a_listener_that_others_reach_without_an_authorizer(tmp_path: Path, listener: str) -> None:
    assert one(tmp_path, {"listeners": listener}) == (
        f"listener {listener} is open to other machines; without authorizer.class.name every client that reaches it "
        "may do everything"
    )


def test_a_log_in_without_an_authorizer(tmp_path: Path) -> None:
    settings = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    settings["listeners"] = "SASL_PLAINTEXT://:9092,LOCAL://localhost:9093"
    del settings["authorizer.class.name"]
    assert "every user that logs in there may do everything" in one(tmp_path, settings)


def test_allow_everyone_where_there_are_no_acls(tmp_path: Path) -> None:
    text = one(tmp_path, {**PLAINTEXT, **AUTHORIZER, "allow.everyone.if.no.acl.found": "true"})
    assert text.startswith("allow.everyone.if.no.acl.found=true lets every client do everything")


@pytest.mark.parametrize("users", ["User:ANONYMOUS", "User:admin; User:ANONYMOUS"])
def test_the_anonymous_user_as_a_super_user(tmp_path: Path, users: str) -> None:
    assert one(tmp_path, {**PLAINTEXT, **AUTHORIZER, "super.users": users}) == (
        "super.users has User:ANONYMOUS: unauthenticated clients of listener PLAINTEXT://:9092 may do everything"
    )


def test_client_certificates_that_are_optional(tmp_path: Path) -> None:
    text = one(tmp_path, SSL)
    assert text == "listener SSL://:9092: with ssl.client.auth=none every client is User:ANONYMOUS to the authorizer"
    assert "a client without a certificate" in one(tmp_path, {**SSL, "ssl.client.auth": "requested"})
    both = warnings(tmp_path, {**SSL, "super.users": "User:ANONYMOUS"})
    assert both == [
        text,
        "super.users has User:ANONYMOUS: unauthenticated clients of listener SSL://:9092 may do everything",
    ]


def test_brokers_that_do_not_verify_host_names(tmp_path: Path) -> None:
    settings = {
        **SSL,
        "ssl.client.auth": "required",
        "zookeeper.connect": "localhost:2181",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert one(tmp_path, settings).startswith("ssl.endpoint.identification.algorithm is empty: brokers do not verify")


def test_files_with_secrets_that_all_users_can_read(tmp_path: Path) -> None:
    keys, login = tmp_path / "broker.pem", tmp_path / "login.conf"
    for path in (keys, login):
        path.write_text("")
        path.chmod(0o640)
    settings = {
        **SSL,
        "ssl.client.auth": "required",
        "listener.name.ssl.ssl.keystore.location": str(keys),
        "java.security.auth.login.config": str(login),
        "ssl.key.password": "hush",
    }
    assert warnings(tmp_path, settings) == []
    for path in (keys, login):
        path.chmod(0o644)
    assert warnings(tmp_path, settings, mode=0o644) == [
        f"listener.name.ssl.ssl.keystore.location={keys}: every user of this machine can read the private key in it",
        f"java.security.auth.login.config={login}: every user of this machine can read the passwords in it",
        f"every user of this machine can read {tmp_path}/server.properties, which holds ssl.key.password",
    ]


def test_a_file_that_is_refused_is_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:9092\nnum.partitions=0\n")
    found = check(str(file))
    assert len(found.refusals) == 1
    assert found.warnings == ()
