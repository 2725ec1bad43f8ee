"""`barnabas produce`, `consume` and `health` through TLS and log-ins, by a file for `--command-config`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compat_tests.harness.secured import MECHANISMS, PASSWORDS, SESSION_MS, Access, Secured, java_settings

pytestmark = pytest.mark.slow
LIMIT_S = 150
PATIENCE = ("--timeout", "50")
"""Our client's: the broker, or itself, may stand still for a while."""
AT_ONCE = ("--timeout", "1000")
"""Who goes on trying for so long does not end before the limit."""


def program() -> list[str]:
    return os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]


def config(access: Access, directory: Path, *, pkcs12: bool = False) -> list[str]:
    """The arguments that lead there."""
    settings = dict(java_settings(access, pkcs12=pkcs12))
    if access.token:
        token = directory / "token"
        token.write_text(access.token)
        settings["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return ["--bootstrap", access.bootstrap, "--command-config", str(file), *PATIENCE]


def call(*arguments: str, stdin: bytes = b"", code: int = 0) -> str:
    """Standard output; with another code than 0 standard error."""
    ended = subprocess.run([*program(), *arguments], input=stdin, capture_output=True, timeout=LIMIT_S)
    assert ended.returncode == code, (arguments, ended.returncode, ended.stdout, ended.stderr)
    return (ended.stderr if code else ended.stdout).decode()


def there_and_back(access: Access, topic: str, directory: Path, *, pkcs12: bool = False) -> None:
    reached = config(access, directory, pkcs12=pkcs12)
    call("produce", topic, *reached, stdin=b"hello\n")
    assert call("consume", topic, *reached) == "hello\n"
    assert "1 broker" in call("health", *reached)


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_log_ins(secured: Secured, topic: str, tmp_path: Path, mechanism: str) -> None:
    there_and_back(secured.login("CLIENTS", mechanism), topic, tmp_path)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_log_ins_through_tls(secured: Secured, topic: str, tmp_path: Path, mechanism: str) -> None:
    there_and_back(secured.login("SECURE", mechanism), topic, tmp_path)


@pytest.mark.parametrize("pkcs12", [False, True])
def test_certificates(secured: Secured, topic: str, tmp_path: Path, pkcs12: bool) -> None:
    access = secured.access("MUTUAL", identity=secured.stores.client("eve", "CN=eve"))
    there_and_back(access, topic, tmp_path, pkcs12=pkcs12)


@pytest.mark.parametrize(
    ("listener", "fields", "said"),
    [
        ("CLIENTS", {"mechanism": "SCRAM-SHA-256", "password": "wrong"}, "it rejects the log-in of alice: "),
        ("CLIENTS", {"mechanism": "OAUTHBEARER", "token": "a.b.c"}, "it does not accept OAUTHBEARER: "),
        ("SECURE", {"mechanism": "OAUTHBEARER", "token": "a.b.c"}, "it rejects the log-in of the token in "),
        ("EXPIRED", {}, "certificate has expired"),
        ("ELSEWHERE", {}, "IP address mismatch"),
        ("CLIENTS", {}, "if this listener wants TLS or a log-in, say how with --command-config"),
    ],
)
def test_what_is_refused_is_said_once_and_at_once(
    secured: Secured, tmp_path: Path, listener: str, fields: dict[str, str], said: str
) -> None:
    error = call("topic", "list", *config(secured.access(listener, **fields), tmp_path), *AT_ONCE, code=1)
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.campaign
@pytest.mark.parametrize("listener", ["SHORT", "BRIEF"])
def test_a_session_that_ends_is_renewed(secured: Secured, topic: str, tmp_path: Path, listener: str) -> None:
    reached = config(secured.login(listener, "SCRAM-SHA-512"), tmp_path)
    follower = subprocess.Popen(
        [*program(), "consume", topic, "--from", "earliest", "--follow", "-n", "3", *reached],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for line in (b"1\n", b"2\n", b"3\n"):
        call("produce", topic, "--bootstrap", secured.plaintext, *PATIENCE, stdin=line)
        time.sleep(SESSION_MS / 1000 * 1.2)
    assert follower.communicate(timeout=LIMIT_S) == (b"1\n2\n3\n", b"")
    assert follower.returncode == 0
