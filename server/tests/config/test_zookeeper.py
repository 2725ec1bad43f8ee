"""What the settings about ZooKeeper become, and what they refuse by name."""

from pathlib import Path

import pytest
import trustme

from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings, ZooKeeperTls
from barnabas.server.config.broker import BrokerConfig, load
from barnabas.server.config.jaas import JaasError, parse_jaas
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.config.zookeeper import zookeeper_settings

LOGIN = "java.security.auth.login.config"
JAAS = """
// for the broker's own listeners
KafkaServer {
   org.apache.kafka.common.security.plain.PlainLoginModule required username=x user_x='y';
   org.apache.kafka.common.security.scram.ScramLoginModule required;
};
/* and this
   for ZooKeeper */
Client { # one
   org.apache.zookeeper.server.auth.DigestLoginModule required
   username="kafka"
   password="a\\"b;c";
};
"""


def made(**values: str) -> ZooKeeperSettings:
    return zookeeper_settings(
        BrokerConfig.from_values({"zookeeper.connect": "z", **{k.replace("_", "."): v for k, v in values.items()}})
    )


def refused(**values: str) -> str:
    with pytest.raises(SettingsRefused) as caught:
        made(**values)
    (problem,) = caught.value.problems
    return problem


@pytest.fixture
def jaas(tmp_path: Path) -> str:
    file = tmp_path / "jaas.conf"
    file.write_text(JAAS)
    return str(file)


@pytest.fixture
def pem(tmp_path: Path) -> tuple[str, str]:
    """A file of certificates, and one with a key."""
    authority = trustme.CA()
    trusted, identity = tmp_path / "ca.pem", tmp_path / "broker.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(identity)
    return str(trusted), str(identity)


def test_defaults() -> None:
    assert made() == ZooKeeperSettings(connect="z")
    assert made() == ZooKeeperSettings(
        connect="z", session_timeout_ms=18000, connection_timeout_ms=None, max_in_flight=10, set_acl=False
    )


def test_times_and_numbers() -> None:
    given = made(
        zookeeper_session_timeout_ms="6000",
        zookeeper_connection_timeout_ms="7000",
        zookeeper_max_in_flight_requests="3",
    )
    assert (given.session_timeout_ms, given.connection_timeout_ms, given.max_in_flight) == (6000, 7000, 3)


@pytest.mark.parametrize(
    ("connect", "why"),
    [("/kafka", "names no host"), ("a:1,,b:2", "names no host"), ("a:1/x//y", "is no path"), ("a:x", "is no address")],
)
def test_addresses_that_cannot_be(connect: str, why: str) -> None:
    problem = refused(zookeeper_connect=connect)
    assert problem.startswith(f"zookeeper.connect={connect} is refused: ")
    assert why in problem


def test_a_login(jaas: str) -> None:
    given = made(**{LOGIN: jaas}, zookeeper_set_acl="true")
    assert given.sasl == Login("kafka", 'a"b;c')
    assert given.set_acl
    assert 'a"b' not in repr(given)


def test_a_login_file_of_kafka_opts(jaas: str) -> None:
    environ = {"KAFKA_ZOOKEEPER_CONNECT": "z", "KAFKA_OPTS": f"-Xmx1g -D{LOGIN}={jaas} -Dother=1"}
    assert zookeeper_settings(load(environ=environ)).sasl == Login("kafka", 'a"b;c')


def test_a_login_file_without_a_section_for_zookeeper(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text("KafkaServer { X required; };")
    assert made(**{LOGIN: str(file)}).sasl is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };", "Krb5LoginModule"),
        ("Client { a.DigestLoginModule required password=x; };", "names no username and password"),
        ("Client { a.DigestLoginModule required", "it ends without ;"),
        ('Client { a.DigestLoginModule required\n username="x; };', "line 2: a quote or comment does not end"),
        ("Client a", "line 1: { is expected"),
    ],
)
def test_logins_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(text)
    problem = refused(**{LOGIN: str(file)})
    assert problem.startswith(f"{LOGIN}=")
    assert why in problem


def test_a_login_file_that_is_missing() -> None:
    assert refused(**{LOGIN: "/none/such"}).endswith("it cannot be read: No such file or directory.")


def test_access_lists_need_a_login(pem: tuple[str, str]) -> None:
    assert refused(zookeeper_set_acl="true").startswith("zookeeper.set.acl=true is refused: it needs a login")
    only_trust = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": pem[0]}
    assert refused(**only_trust, zookeeper_set_acl="true").startswith("zookeeper.set.acl=true is refused")
    assert made(**only_trust, zookeeper_ssl_keystore_location=pem[1], zookeeper_set_acl="true").set_acl


def test_tls(pem: tuple[str, str]) -> None:
    trusted, identity = pem
    given = made(
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_truststore_location=trusted,
        zookeeper_ssl_truststore_type="PEM",
        zookeeper_ssl_keystore_location=identity,
        zookeeper_ssl_keystore_password="secret",
        zookeeper_ssl_enabled_protocols="TLSv1.3,TLSv1.2",
        zookeeper_ssl_endpoint_identification_algorithm="",
    )
    assert given.tls == ZooKeeperTls(
        trusted=trusted,
        identity=identity,
        password="secret",
        versions=("TLSv1.3", "TLSv1.2"),
        check_hostname=False,
    )
    assert "secret" not in repr(given)
    assert made(zookeeper_ssl_client_enable="true").tls == ZooKeeperTls(versions=("TLSv1.2",))
    assert made(zookeeper_ssl_truststore_location=trusted).tls is None, "not enabled"


def test_java_key_stores_are_refused(tmp_path: Path, pem: tuple[str, str]) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    problem = refused(zookeeper_ssl_client_enable="true", zookeeper_ssl_keystore_location=str(store))
    assert "it holds no PRIVATE KEY in PEM format" in problem
    problem = refused(zookeeper_ssl_client_enable="true", zookeeper_ssl_keystore_location=pem[0])
    assert "it holds no PRIVATE KEY in PEM format" in problem
    problem = refused(zookeeper_ssl_keystore_type="JKS")
    assert problem.startswith("zookeeper.ssl.keystore.type=JKS is refused: it must be PEM")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zookeeper.ssl.crl.enable", "true"),
        ("zookeeper.ssl.ocsp.enable", "true"),
        ("zookeeper.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
        ("zookeeper.ssl.protocol", "SSLv3"),
        ("zookeeper.ssl.enabled.protocols", "TLSv1.2,TLSv1.1"),
        ("zookeeper.metadata.migration.enable", "true"),
    ],
)
def test_what_is_not_done_is_refused(key: str, value: str) -> None:
    assert refused(**{key: value}).startswith(f"{key}={value} is refused: ")


def test_jaas_sections() -> None:
    sections = parse_jaas(JAAS)
    assert [(name, [module.name for module in modules]) for name, modules in sections.items()] == [
        (
            "KafkaServer",
            [
                "org.apache.kafka.common.security.plain.PlainLoginModule",
                "org.apache.kafka.common.security.scram.ScramLoginModule",
            ],
        ),
        ("Client", ["org.apache.zookeeper.server.auth.DigestLoginModule"]),
    ]
    assert sections["KafkaServer"][0].options == {"username": "x", "user_x": "y"}
    assert 'a"b' not in repr(sections)
    assert parse_jaas("") == {}
    with pytest.raises(JaasError):
        parse_jaas("A { B required x=; };")
