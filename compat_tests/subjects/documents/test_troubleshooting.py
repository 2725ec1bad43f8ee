"""docs/troubleshooting.md: each message comes when the page says that it does, and the settings let clients in."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = pytest.mark.slow
TEXT = (PROJECT_ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]*)` \|", TEXT.partition("## Messages")[2], re.MULTILINE)


def test_the_messages(tmp_path: Path) -> None:
    """All of the table, provoked."""
    assert len(MESSAGES) == 9
    stranger = Stranger(tmp_path)
    stranger.types(texts("docs/security.md", "From nothing to TLS, SCRAM and access control", "sh")[0])
    listeners = "listeners=PLAINTEXT://0.0.0.0:9092,SSL://localhost:9093"
    advertised = "advertised.listeners=PLAINTEXT://localhost:9092,SSL://localhost:9093"
    tls = "--set ssl.keystore.type=PEM --set ssl.keystore.location=broker.pem"
    line = f"barnabas serve --set log.dirs=data --set {listeners} --set {advertised} {tls} --set num.partition=3"
    said = ""
    with stranger.keeps_running(line, "serves ") as broker:
        said += stranger.types(
            "barnabas serve --set log.dirs=other --set listeners=PLAINTEXT://0.0.0.0:9092", code=1
        ).stderr
        said += stranger.types(
            "barnabas serve --set log.dirs=data --set listeners=PLAINTEXT://localhost:9099", code=1
        ).stderr
        stranger.types("curl --silent --max-time 60 http://localhost:9092 || true")
        broker.wait_for("HTTP request")
        stranger.types("openssl s_client -connect localhost:9092 < /dev/null || true")
        broker.wait_for("TLS client")
        stranger.types("barnabas health --bootstrap localhost:9093 --timeout 60", code=1)
        broker.wait_for("client without TLS")
        # A client that trusts nobody.
        stranger.types("openssl s_client -connect localhost:9093 -verify_return_error < /dev/null", code=1)
        broker.wait_for("TLS on listener")
        stranger.types("barnabas health --bootstrap localhost:9092")
        stranger.types("echo security.protocol=SSL > tls.properties")
        asking = "barnabas health --bootstrap localhost:9092 --command-config tls.properties --timeout 60"
        said += stranger.types(asking, code=1).stderr
        said += broker.errors
    for message in MESSAGES:
        pattern = ".*".join(re.escape(part) for part in message.split("…"))
        assert re.search(pattern, said), (message, said)


def test_on_other_machines(tmp_path: Path) -> None:
    """Where a client of another machine is sent: to the name that is advertised."""
    (settings,) = re.findall(r"^\| on other machines \| `([^`]*)` \|", TEXT, re.MULTILINE)
    name = socket.gethostname()
    stranger = Stranger(tmp_path)
    line = f"barnabas serve --set log.dirs=data {settings}".replace("NAME", name)
    with stranger.keeps_running(line, "serves ") as broker:
        assert f"{name}:{stranger.text('9092')}" in broker.errors
