"""Files for `--command-config`: what is read, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.server.client.client_keys import NAMES
from barnabas.server.client.command_config import Unusable, read_approach
from barnabas.server.security.sasl.client import ClientCredentials

LOGIN = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
SASL = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_nothing_to_be_done(file: Path) -> None:
    file.write_text("client.id=me\nsasl.mechanism=GSSAPI\n")
    approach = read_approach(str(file))
    assert (approach.tls, approach.credentials) == (None, None)


@pytest.mark.parametrize(("more", "by_token"), [("", False), (' tokenauth="true"', True), (" tokenauth=false", False)])
def test_which_login_is_used(file: Path, more: str, by_token: bool) -> None:
    file.write_text(SASL.replace("PLAIN\n", "SCRAM-SHA-512\n") + LOGIN + f'username="a b" password="p;=q"{more};\n')
    assert read_approach(str(file)).credentials == ClientCredentials("SCRAM-SHA-512", "a b", "p;=q", by_token)


def test_names_are_checked_unless_it_says_otherwise(file: Path) -> None:
    for said, checks in (("", True), ("ssl.endpoint.identification.algorithm=\n", False)):
        file.write_text("security.protocol=ssl\n" + said)
        context = read_approach(str(file)).tls
        assert context is not None
        assert context.check_hostname is checks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "security.protocol=TLS",
            "security.protocol=TLS is refused: it must be one of PLAINTEXT, SSL, ",
        ),
        ("security.protocol=SASL_SSL", "sasl.mechanism is missing: it must be one of PLAIN, SCRAM-SHA-256, "),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI",
            "sasl.mechanism=GSSAPI is refused: it must be one of PLAIN, SCRAM-SHA-256, ",
        ),
        ("security.protocl=SSL", "security.protocl is unknown, and security.protocol is missing: is that meant?"),
        ("Security.Protocol=SSL", "Security.Protocol is unknown, and security.protocol is missing: is that meant?"),
        (
            "sasl.mechanism=PLAIN\n" + LOGIN + 'username="a" password="secret";',
            "sasl.jaas.config needs security.protocol=SASL_SSL or SASL_PLAINTEXT, and security.protocol is missing",
        ),
        (
            "ssl.truststore.location=/trust.pem",
            "ssl.truststore.location needs security.protocol=SSL or SASL_SSL, and security.protocol is missing",
        ),
        ("client.id=\0", " is no properties file: it must be text, a KEY=VALUE a line"),
        (SASL, "sasl.jaas.config is missing"),
        (SASL + LOGIN + 'username="a";', "sasl.jaas.config must have username and password"),
        (SASL + LOGIN + 'password="secret"', ": "),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere.pem", "ssl.truststore.location "),
        ("a=\\u12", "line 1: "),
    ],
)
def test_refusals(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(Unusable) as caught:
        read_approach(str(file))
    assert str(caught.value).startswith(str(file))
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_keys_of_other_programs(file: Path) -> None:
    file.write_text("security.protocol=PLAINTEXT\ngröße=1\n", encoding="utf-8")
    assert read_approach(str(file)).tls is None


@pytest.mark.parametrize("data", [b"\x30\x82\xff\xfe", "client.id=é".encode("utf-16"), b"\x7fELF\x01=x"])
def test_what_is_no_text(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(Unusable, match="is no properties file"):
        read_approach(str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.mechanims=PLAIN", "sasl.mechanims is unknown and is ignored (is sasl.mechanism meant?)"),
        ("ssl.ca.location=ca.pem", "ssl.ca.location is unknown and is ignored"),
        ("security.protocols=SSL", "security.protocols is unknown and is ignored (is security.protocol meant?)"),
        ("ssl.truststore.location=x", "ssl.truststore.location has no effect with security.protocol=PLAINTEXT"),
        (LOGIN, "sasl.jaas.config has no effect with security.protocol=PLAINTEXT"),
    ],
)
def test_what_may_be_a_mistake_is_said(file: Path, text: str, said: str) -> None:
    warnings: list[str] = []
    file.write_text(f"security.protocol=PLAINTEXT\n{text}\n")
    assert read_approach(str(file), warnings.append).protocol == "PLAINTEXT"
    assert warnings == [f"{file}: {said}"]


STOCK = """
bootstrap.servers client.id group.id acks key.serializer value.deserializer interceptor.classes linger.ms
schema.registry.url basic.auth.user.info admin.security.protocol producer.ssl.truststore.location my.own.key
security.protocol.map
"""


def test_stock_clients_files_are_taken_as_they_are(file: Path) -> None:
    """In Latin-1, too, as Java reads them."""
    table = Path(__file__).parents[1] / "settings" / "data" / "kafka_settings.tsv"
    names = [line.split("\t")[2] for line in table.read_text().splitlines()[1:]]
    assert len(names) > 300
    keys = {*names, *STOCK.split(), *NAMES} - {"security.protocol"}
    warnings: list[str] = []
    for head in ("", "security.protocol=PLAINTEXT\n"):
        file.write_bytes("\n".join([f"{head}# f\xfcr", *(f"{key}=" for key in sorted(keys))]).encode("latin-1"))
        assert read_approach(str(file), warnings.append).protocol == "PLAINTEXT"
    assert warnings == []


def test_no_file(file: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read: No such file or directory"):
        read_approach(str(file))
