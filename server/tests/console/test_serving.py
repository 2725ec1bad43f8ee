"""The console as a process: HTTP by Hypercorn, the command line, its refusals, its end."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypercorn")
pytest.importorskip("starlette")

from barnabas.server.cli import console as console_cli
from barnabas.server.cli import main as cli
from barnabas.server.testing import broker_thread
from barnabas.server.tests.runtime.test_logs import restored  # noqa: F401  # the log set-up is undone after each test
from barnabas.server.tests.test_layers import ROOT


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_thread() as address:
        yield address


@contextmanager
def started(*arguments: str, bootstrap: str = "localhost:1") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a console, and its process."""
    command = [sys.executable, "-P", "-m", "barnabas", "console", "--bootstrap", bootstrap, "--timeout", "60"]
    command += arguments
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode().strip()
            assert line.startswith("console=http://"), (line, process.stderr and process.stderr.read())
            yield line.removeprefix("console=http://"), process
        finally:
            process.kill()


def get(address: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_pages_over_http(bootstrap: str) -> None:
    with started("--listen", "127.0.0.1:0", bootstrap=bootstrap) as (address, process):
        status, headers, body = get(address, "/")
        assert status == 200
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in headers
        assert int(headers["content-length"]) == len(body)
        assert json.loads(get(address, "/index.json")[2])["brokers"]
        assert get(address, "/static/console.css")[1]["content-type"] == "text/css; charset=utf-8"
        assert get(address, "/", Host="evil.example")[0] == 421
        assert get(address, "/static/..%2f..%2fapp.py")[0] == 404
        # Requests that are none, and visitors that leave in the middle, end nothing.
        for garbage in (b"\x00" * 100, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET /topics HTTP/1.1\r\nHo"):
            with socket.create_connection(tuple_of(address), timeout=60) as sock:
                sock.sendall(garbage)
        long = b"GET /?" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.create_connection(tuple_of(address), timeout=60) as sock:
            sock.sendall(long[:100_000])
            assert b" 200 " not in sock.recv(100)
        assert get(address, "/topics.json")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def tuple_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@pytest.mark.slow
def test_it_starts_without_a_cluster_and_ends_by_ctrl_c() -> None:
    with started("--listen", "[::1]:0", "--timeout", "1") as (address, process):
        status, _, body = get(address, "/")
        assert status == 502
        assert b"localhost:1" in body
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_stream_does_not_hold_up_the_end(bootstrap: str) -> None:
    assert cli.main(["topic", "create", "tailed", "--bootstrap", bootstrap, "--timeout", "60"]) == 0
    with started("--listen", "127.0.0.1:0", bootstrap=bootstrap) as (address, process):
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/topics/tailed/live-events")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.read(10) == b": begins\n\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        connection.close()


@pytest.mark.slow
def test_records_in_avro(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a file, and decoded in a process that ends with the console."""
    pytest.importorskip("fastavro")
    (tmp_path / "stock-value.avsc").write_text('{"type": "array", "items": "long"}')
    assert cli.main(["topic", "create", "stock", "--bootstrap", bootstrap, "--timeout", "60"]) == 0
    lines = b'{"value_base64": "BAIEAA=="}\n{"value": "no avro"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert cli.main(["produce", "stock", "--json", "--bootstrap", bootstrap, "--timeout", "60"]) == 0
    with started("--listen", "127.0.0.1:0", "--avro-schemas", str(tmp_path), bootstrap=bootstrap) as (address, process):
        found: list[str] = []
        deadline = time.monotonic() + 120
        while not found:  # the process has its time by the clock: if the machine had none for it, it is asked again
            assert time.monotonic() < deadline
            status, _, body = get(address, "/topics/stock/records.json?from=earliest&json=%24%5B1%5D%3D%3D2")
            assert status == 200, body
            found = [each["value"]["text"] for each in json.loads(body)["records"]]
        assert found == ["[1, 2]"]
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        assert len(children) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not Path(f"/proc/{children[0]}").exists()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["console", "--log-level", "off", *arguments], {})
    return code, capsys.readouterr().err


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "--listen", "0.0.0.0:0")
    assert (code, "is open to other machines" in text, "--password-file" in text) == (2, True, True)
    code, text = said(capsys, "--listen", "nowhere")
    assert (code, text) == (2, "barnabas: --listen nowhere must be written as HOST:PORT\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, text = said(capsys, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (code, "already in use" in text) == (2, True)
    code, text = said(capsys, "--command-config", str(tmp_path / "none"))
    assert (code, "cannot be read" in text) == (2, True)
    for arguments, why in (
        (["--avro-schemas", str(tmp_path / "none")], "is no directory"),
        (["--schema-registry", "registry:8081"], "http://HOST:PORT or https"),
        (["--schema-registry", "http://ada:secret@registry"], "without a name or a password"),
    ):
        code, text = said(capsys, *arguments)
        assert (code, why in text, "secret" in text) == (2, True, False), text
    (tmp_path / "file").write_text("schema.registry.url=nowhere\n")
    code, text = said(capsys, "--command-config", str(tmp_path / "file"))
    assert (code, "http://HOST:PORT" in text) == (2, True), text
    password = tmp_path / "password"
    for content, mode, why in (
        (None, 0, "cannot be read"),
        ("open sesame", 0o644, "chmod 600"),
        ("short", 0o600, "8 characters"),
        ("two lines\nof text", 0o600, "one line"),
        (b"\xff" * 10, 0o600, "not UTF-8"),
    ):
        if content is not None:
            password.write_bytes(content if isinstance(content, bytes) else content.encode())
            password.chmod(mode)
        code, text = said(capsys, "--password-file", str(password))
        assert (code, why in text) == (2, True), text


def test_without_its_packages_it_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> Any:
        return None if name in ("starlette", "jinja2") else object()

    monkeypatch.setattr(console_cli, "find_spec", missing)
    code, text = said(capsys)
    assert code == 2
    assert text == "barnabas: the console needs starlette, jinja2; install Barnabas with its extra [console]\n"
