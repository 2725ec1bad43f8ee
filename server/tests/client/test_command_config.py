"""Files for `--command-config`: what is read, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        ("security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI is refused: it must be one of PLAIN, SCRAM-SHA-256, "),
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


def test_no_file(file: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read: No such file or directory"):
        read_approach(str(file))
