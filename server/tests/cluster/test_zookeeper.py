"""What the settings about ZooKeeper become, and what they refuse by name."""

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings
from barnabas.server.cluster.zookeeper import zookeeper_settings
from barnabas.server.config.broker import BrokerConfig, load
from barnabas.server.config.jaas import JaasError, parse_jaas
from barnabas.server.config.problems import SettingsRefused
from compat_tests.harness.certificates import Authority

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
        zookeeper_ssl_truststore_type="pem",
        zookeeper_ssl_keystore_location=identity,
        zookeeper_ssl_enabled_protocols="TLSv1.3,TLSv1.2",
        zookeeper_ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        zookeeper_ssl_endpoint_identification_algorithm="",
    )
    assert given.tls is not None
    assert given.shows_certificate
    assert given.tls.verify_mode is ssl.CERT_REQUIRED
    assert not given.tls.check_hostname
    assert (given.tls.minimum_version, given.tls.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert [each["subject"] for each in given.tls.get_ca_certs()] == [decoded_subject(trusted)]
    of_1_2 = [each["name"] for each in given.tls.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert of_1_2 == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


def decoded_subject(file: str) -> object:
    context = ssl.create_default_context(cafile=file)
    return context.get_ca_certs()[0]["subject"]


def test_tls_as_it_is_unless_something_is_set(pem: tuple[str, str]) -> None:
    given = made(zookeeper_ssl_client_enable="true")
    assert given.tls is not None
    assert not given.shows_certificate
    assert given.tls.check_hostname
    assert (given.tls.minimum_version, given.tls.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert made(zookeeper_ssl_truststore_location=pem[0]).tls is None, "not enabled"


@pytest.mark.parametrize("kind", ["pem", "p12"])
def test_stores_with_a_password(tmp_path: Path, kind: str) -> None:
    """ZooKeeper's clients have one for a store: in PKCS12 it is the store's, in PEM the key's; a file of trusted
    certificates in PEM has none.
    """
    authority = Authority()
    identity = authority.issue("CN=broker")
    trusted, own = tmp_path / f"ca.{kind}", tmp_path / f"broker.{kind}"
    if kind == "pem":
        encrypted = identity.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"store-secret")
        )
        own.write_bytes(encrypted + identity.certificate.public_bytes(Encoding.PEM))
        trusted.write_bytes(authority.pem())
    else:
        own.write_bytes(identity.pkcs12("store-secret"))
        trusted.write_bytes(authority.pkcs12("store-secret"))

    def values(password: str | None) -> dict[str, str]:
        given = {"client.enable": "true", "keystore.location": str(own), "truststore.location": str(trusted)}
        given |= {"truststore.password": "store-secret"}
        given |= {} if password is None else {"keystore.password": password}
        return {f"zookeeper.ssl.{key}": value for key, value in given.items()}

    given = made(**values("store-secret"))
    assert given.tls is not None
    assert given.shows_certificate
    assert len(given.tls.get_ca_certs()) == 1
    wrong, missing = refused(**values("another")), refused(**values(None))
    if kind == "pem":
        assert (
            wrong
            == missing
            == (
                f"zookeeper.ssl.keystore.location={own} is refused: holds a private key that cannot be read: "
                "it is damaged, or its password is missing or another one."
            )
        )
    else:
        assert wrong.startswith(f"zookeeper.ssl.keystore.location={own} is refused: {own} is no PKCS12 store, or its")
        assert missing.startswith("zookeeper.ssl.keystore.password is missing")
    assert "store-secret" not in wrong + missing


def test_stores_that_cannot_be_used(tmp_path: Path, pem: tuple[str, str]) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    tls = {"zookeeper.ssl.client.enable": "true"}
    problem = refused(**tls, zookeeper_ssl_keystore_location=str(store))
    assert problem.startswith(f"zookeeper.ssl.keystore.location={store} is refused: ")
    assert "keytool -importkeystore" in problem
    assert "no private key" in refused(**tls, zookeeper_ssl_keystore_location=pem[0])
    assert "cannot be read: No such file" in refused(**tls, zookeeper_ssl_truststore_location="/none/such")
    suites = refused(**tls, zookeeper_ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    assert suites.endswith("names none for TLSv1.2, and TLSv1.3 is not spoken.")
    assert refused(zookeeper_ssl_keystore_type="BCFKS").startswith("zookeeper.ssl.keystore.type=BCFKS is refused")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("zookeeper.ssl.crl.enable", "true"),
        ("zookeeper.ssl.ocsp.enable", "true"),
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
