"""The console beside the broker: what it is called with, its starts and ends."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.replication import Endpoint
from barnabas.server.broker import console_process
from barnabas.server.broker.console_process import arguments, run_beside
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.runtime.logs import set_up
from barnabas.server.tests.runtime.test_logs import restored  # noqa: F401
from barnabas.server.tests.test_layers import ROOT

PLAIN = Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
SECURE = Endpoint("CLIENTS", "::1", 9093, "SASL_SSL")


def config(**settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.from_values({"console.listener": "http://127.0.0.1:8080", **given})


def test_what_it_is_called_with() -> None:
    listen = ["--exit-with-parent", "--listen", "127.0.0.1:8080", "--log-level", "warn"]
    listen += ["--logger", "console.audit=info", "--log-format", "text", "--log-name", "console"]
    assert arguments(config(), [SECURE, PLAIN]) == ["console", "--bootstrap", "localhost:9092", *listen]
    secured = config(console_command_config="/c", console_password_file="/p", console_read_only="true")
    assert arguments(secured, [SECURE, PLAIN]) == [
        *("console", "--bootstrap", "[::1]:9093", *listen),
        *("--command-config", "/c", "--password-file", "/p", "--read-only"),
    ]
    assert "[::1]:9093" in arguments(config(), [SECURE])
    behind = config(console_host_names="a.example,b.example", console_proxy_addresses="127.0.0.1,10.0.0.0/8")
    assert arguments(behind, [PLAIN], "json")[-10:] == [
        *("--log-format", "json", "--log-name", "console")[-2:],
        *("--host", "a.example", "--host", "b.example", "--proxy", "127.0.0.1", "--proxy", "10.0.0.0/8"),
    ]
    avro = config(console_avro_schemas="/s", console_schema_registry_url="https://r/x")
    assert arguments(avro, [PLAIN])[-4:] == ["--avro-schemas", "/s", "--schema-registry", "https://r/x"]
    for url in ("r:8081", "ftp://r", "https://u:p@r", "http://r:99999", "http://r?a=b"):
        with pytest.raises(SettingsRefused, match=r"console\.schema\.registry\.url"):
            config(console_schema_registry_url=url)
    assert "--log-format json" in " ".join(arguments(behind, [PLAIN], "json"))
    with pytest.raises(SettingsRefused, match=r"console\.proxy\.addresses"):
        config(console_proxy_addresses="proxy.example")


@pytest.mark.parametrize("style", ["text", "json"])
async def test_it_logs_as_the_broker_does(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    restored: None,  # noqa: F811
    style: str,
) -> None:
    called: list[Sequence[str]] = []

    async def life(arguments: Sequence[str], ready: Any) -> int:
        called.append(arguments)
        return 2

    monkeypatch.setattr(console_process, "_life", life)
    set_up("info", style)
    await run_beside(config(), [PLAIN])
    assert called[0][called[0].index("--log-format") + 1] == style


async def test_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    lives: list[float] = []

    async def life(called: Sequence[str], ready: Any) -> int:
        lives.append(trio.current_time())
        if len(lives) == 2:
            raise OSError(12, "Cannot allocate memory")
        if len(lives) == 5:
            await trio.sleep(100)
        return 2 if len(lives) == 7 else 1

    monkeypatch.setattr(console_process, "_life", life)
    began = trio.current_time()
    await run_beside(config(), [PLAIN])
    assert [round(at - began) for at in lives] == [0, 1, 3, 7, 15, 116, 118]
    assert "cannot allocate memory" in caplog.text
    assert "ended with status 1" in caplog.text
    assert "there is no console" in caplog.text


@pytest.mark.slow
def test_dev_brings_one_along(tmp_path: Path) -> None:
    pytest.importorskip("hypercorn")
    pytest.importorskip("starlette")
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--console", "--topic", "seen"]
    # One is killed, and leaves its files behind.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"bootstrap=")
            address = process.stdout.readline().decode().strip().removeprefix("console=http://")
            assert b"seen" in asked(address, "/topics.json")
            process.send_signal(number)
            process.wait(60)
        deadline = time.monotonic() + 60
        while is_there(address):
            assert time.monotonic() < deadline, "the console outlives its broker"


@pytest.mark.slow
def test_dev_with_log_ins_brings_one_along_that_logs_in(tmp_path: Path) -> None:
    pytest.importorskip("hypercorn")
    pytest.importorskip("starlette")
    pytest.importorskip("trustme")
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--console", "--security", "SASL_SSL", "--topic", "seen"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        lines = dict(process.stdout.readline().decode().strip().split("=", 1) for _ in range(3))
        assert b"seen" in asked(lines["console"].removeprefix("http://"), "/topics.json")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def is_there(address: str) -> bool:
    try:
        return bool(asked(address, "/topics.json"))
    except OSError:
        return False


def asked(address: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
