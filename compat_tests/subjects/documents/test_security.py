"""docs/security.md: TLS, users, lists, listeners, tokens and quotas from nothing, as the page says it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compat_tests.harness.checks import wait_until
from compat_tests.harness.tokens import TokenIssuer
from compat_tests.subjects.documents.stranger import Running, Stranger, texts

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1200)]
PAGE = "docs/security.md"
BEGINNING = "From nothing to TLS, SCRAM and access control"


def with_lines(settings: str, more: str, *, without: str = "(?!)") -> str:
    """Settings with others, which win; without those whose names match."""
    names = set(re.findall(r"^([\w.-]+)=", more, re.MULTILINE))
    kept = [
        line for line in settings.splitlines() if line.partition("=")[0] not in names and not re.match(without, line)
    ]
    return "\n".join([*kept, more])


@contextmanager
def served(stranger: Stranger) -> Iterator[Running]:
    with stranger.keeps_running("barnabas serve server.properties", "serves ") as broker:
        yield broker
        assert " ERROR " not in broker.errors, broker.errors


def begin(stranger: Stranger) -> None:
    """The authority, the broker's certificate and settings, the users and their files."""
    certificates, users, _, check = texts(PAGE, BEGINNING, "sh")
    settings, client = texts(PAGE, BEGINNING, "properties")
    stranger.types(certificates)
    stranger.write("server.properties", settings)
    stranger.write("alice.properties", client)
    *prepare, serve = users.splitlines()
    assert serve == "barnabas serve server.properties"
    said = stranger.types("\n".join(prepare)).stdout
    assert re.search(r"server\.properties can be used \(\d+ settings, 0 refusals, 0 warnings\)", said), said
    stranger.types(check.splitlines()[0])


@pytest.mark.campaign
@pytest.mark.jvm
def test_from_nothing(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, with_kafka=True)
    begin(stranger)
    _, _, allow, check = texts(PAGE, BEGINNING, "sh")
    with served(stranger) as broker:
        stranger.types(allow)
        stranger.types(check)
        refused = stranger.types(
            "barnabas topic create other --bootstrap localhost:9093 --command-config alice.properties", code=1
        )
        assert "AUTHORIZATION_FAILED" in refused.stdout + refused.stderr
        consumed = "--bootstrap-server localhost:9093 --topic orders --group any --from-beginning --max-messages 1"
        read = stranger.types(f"kafka-console-consumer {consumed} --command-config alice.properties").stdout
        assert read.splitlines() == ["hello"]

        (another,) = texts(PAGE, "Another listener, without a restart", "sh")
        stranger.types(another)
        shaken = "openssl s_client -connect localhost:9094 -CAfile ca.pem < /dev/null"
        wait_until(
            lambda: "Verification: OK" in stranger.types(f"{shaken} 2>&1 || true").stdout, "it is open", every=0.2
        )
        stranger.types(
            "kafka-configs --bootstrap-server localhost:9093 --command-config admin.properties --entity-type brokers "
            "--entity-name 1 --alter --delete-config listeners,listener.name.ssl.ssl.client.auth"
        )
        broker.wait_for("is closed")

        (quotas,) = texts(PAGE, "Quotas and limits", "sh")
        stranger.types(quotas)
        described = "--bootstrap-server localhost:9093 --command-config admin.properties --describe"
        said = stranger.types(f"kafka-configs {described} --entity-type users --entity-name alice").stdout
        assert "producer_byte_rate=1048576.0" in said


@pytest.mark.jvm
def test_delegation_tokens(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, with_kafka=True)
    begin(stranger)
    keys, login = texts(PAGE, "Delegation tokens", "properties")
    (create,) = texts(PAGE, "Delegation tokens", "sh")
    stranger.write("server.properties", with_lines(texts(PAGE, BEGINNING, "properties")[0], keys))
    with served(stranger):
        said = stranger.types(create).stdout
        found = re.search(r"tokenId : (\S+)[^\n]*\n", said)
        assert found is not None, said
        row = next(line.split() for line in said.splitlines() if line.startswith(found[1]))
        with_token = login.replace("<TOKENID>", row[0]).replace("<HMAC>", row[1])
        of_alice = (stranger.here / "alice.properties").read_text()
        without = re.sub(r"(?m)^sasl\.(.*\\\n)*.*\n", "", of_alice)
        (stranger.here / "token.properties").write_text(without + with_token)
        stranger.types(texts(PAGE, BEGINNING, "sh")[2])
        stranger.types("echo x | barnabas produce orders --bootstrap localhost:9093 --command-config token.properties")


@pytest.mark.jvm
def test_mutual_tls(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, with_kafka=True)
    begin(stranger)
    certificates, again = texts(PAGE, "Mutual TLS", "sh")
    settings, client = texts(PAGE, "Mutual TLS", "properties")
    stranger.types(certificates)
    stranger.write(
        "server.properties", with_lines(texts(PAGE, BEGINNING, "properties")[0], settings, without=r"sasl\.")
    )
    stranger.write("admin.properties", client)
    stranger.write("alice.properties", client.replace("admin.pem", "alice.pem"))
    to = "--bootstrap localhost:9093 --command-config"
    with served(stranger):
        stranger.types(f"barnabas topic create orders {to} admin.properties")
        refused = stranger.types(f"barnabas topic create other {to} alice.properties", code=1)
        assert "AUTHORIZATION_FAILED" in refused.stdout + refused.stderr
        stranger.types(f"barnabas health {to} alice.properties")
        shaken = "openssl s_client -connect localhost:9093 -CAfile ca.pem -cert admin.pem < /dev/null"
        serial = "| openssl x509 -noout -serial"
        before = stranger.types(f"{shaken} {serial}").stdout
        # As at first, but for what is there already.
        stranger.types("\n".join(texts(PAGE, BEGINNING, "sh")[0].splitlines()[4:]))
        stranger.types(again)
        assert stranger.types(f"{shaken} {serial}").stdout != before


@contextmanager
def issuer(directory: Path) -> Iterator[str]:
    """Its URL; it gives out tokens for who names himself and his password."""
    tokens = TokenIssuer(directory / "jwks.json")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(tokens.jwks.read_bytes())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"access_token": tokens.token("alice"), "token_type": "bearer", "expires_in": 3600}
            self._answer(json.dumps(token).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_oauthbearer(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    begin(stranger)
    settings, client = texts(PAGE, "OAUTHBEARER", "properties")
    with issuer(tmp_path) as url:
        settings = re.sub(r"issuer=https://issuer\.example", "issuer=https://tokens.example", settings)
        whole = with_lines(texts(PAGE, BEGINNING, "properties")[0], settings)
        (stranger.here / "server.properties").write_text(stranger.text(whole).replace("https://issuer.example", url))
        (stranger.here / "bearer.properties").write_text(client.replace("https://issuer.example", url))
        with served(stranger):
            stranger.types(texts(PAGE, BEGINNING, "sh")[2])
            to = "--bootstrap localhost:9093 --command-config"
            stranger.types(f"barnabas health {to} bearer.properties")
            stranger.types(f"echo x | barnabas produce orders {to} bearer.properties")
            refused = stranger.types(f"barnabas topic create other {to} bearer.properties", code=1)
            assert "AUTHORIZATION_FAILED" in refused.stdout + refused.stderr
