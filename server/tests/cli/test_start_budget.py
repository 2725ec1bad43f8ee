"""The start-up budget: what is loaded until a broker is ready. It is a quarter of a second, most of it imports."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.server.cli import main as cli

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = "import time:"
NOT_FOR_A_START = re.compile(
    r"(asyncio|concurrent|email|html?|http|importlib\.metadata|logging\.config|multiprocessing|sqlite3|urllib\.request|xml)\b"
    r"|(cryptography|kazoo|prometheus_client|re2|jinja2|numpy|h2|lz4|cramjam)\b"
    r"|barnabas\.server\.(console|metrics|telemetry|client|wire|machine|sim|testing)\."
    r"|barnabas\.server\.apis\.(between_brokers|configs)\b"
    r"|barnabas\.server\.(storage\.(adoption|snapshots|cleaner_worker)|config\.sasl|network\.(tls_listener|login))\b"
    r"|barnabas\.server\.coordinators\.(share|streams)\b|barnabas\.server\.cli\.\w+_arguments\b"
    r"|barnabas\.replication\.store\.(zk|socket_)|barnabas\.logdir\.(offline|dirs\.survey)\b"
)
"""What a broker without TLS, SASL, metrics, console, cluster loads when it is asked for it, or never."""


def test_nothing_heavy_is_imported_to_explain_itself() -> None:
    """The start-up budget: the command line loads neither trio nor the log code before it knows what to do."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from barnabas.server.cli import main as cli; cli.main(['--version']); "
        "cli.main(['config', '--all']); "
        "heavy = {'trio', 'asyncio', 'barnabas.logdir', 'barnabas.coordinator'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={"PATH": "/bin"}
    )
    assert done.stderr == "[]\n"


def test_a_broker_loads_what_its_listeners_want() -> None:
    """The same budget: TLS and SASL are for those who have them."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from barnabas.server.broker import process; "
        "from barnabas.server.broker.broker import Broker; "
        "from barnabas.server.config.broker import BrokerConfig; "
        "Broker(BrokerConfig.from_values(dict(item.split('=', 1) for item in sys.argv[1:]))); "
        "parts = ('config.sasl', 'network.tls_listener', 'network.login', 'security.tls.contexts'); "
        "print([part for part in parts if f'barnabas.server.{part}' in sys.modules])"
    )
    sasl = ["listeners=SASL_PLAINTEXT://:9092", "security.inter.broker.protocol=SASL_PLAINTEXT"]
    sasl += ["sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"]
    for settings, loaded in ([], []), (sasl, ["config.sasl"]):
        command = [sys.executable, "-c", code, *settings]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/bin"})
        assert (done.stderr, done.stdout) == ("", f"{loaded}\n")


def test_the_collector_rests_for_brokers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for them until they are loaded."""
    found: list[bool] = []
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run` takes it for itself
    monkeypatch.setattr(cli, "_serve", lambda *_: 0)
    try:
        for argument in ("serve", "--version"):
            monkeypatch.setattr(sys, "argv", ["barnabas", argument])
            with pytest.raises(SystemExit) as ended:
                cli.run()
            assert ended.value.code == 0
            found.append(gc.isenabled())
    finally:
        gc.enable()
    assert found == [False, True]


@pytest.mark.slow
def test_what_a_broker_loads_until_it_is_ready(tmp_path: Path) -> None:
    """The start-up budget, as a whole: a broker for tests is there in a quarter of a second. What it loads after that
    waits until it has been looked at.
    """
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from barnabas.server.broker import process\n"
        "process.LOAD_REST_S = 3600\n"
        f"runpy.run_path({str(ROOT / 'barnabas' / '__main__.py')!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-X", "importtime", "-P", "-c", code, "dev", "--control"]
    said = tmp_path / "imports"
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [*command, "127.0.0.1:0", "--exit-with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        ready = process.stdout.readline()
        err = said.read_text("utf-8")
        process.stdin.close()  # it stops then
    assert (process.returncode, ready[:10]) == (0, b"bootstrap="), err[-1000:]
    loaded = [line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith(IMPORTED)]
    assert [name for name in loaded if NOT_FOR_A_START.match(name)] == []


@pytest.mark.slow
def test_the_rest_is_loaded_when_it_is_ready(tmp_path: Path) -> None:
    code = (
        f"import os, signal, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from barnabas.server.broker import process\n"
        "from barnabas.server.config.broker import BrokerConfig\n"
        "def rest():\n"
        "    print('the rest', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "process.load_rest, process.LOAD_REST_S = rest, 0\n"
        "values = {'listeners': 'PLAINTEXT://127.0.0.1:0', 'log.dirs': sys.argv[1]}\n"
        "sys.exit(process.run(BrokerConfig.from_values(values), lambda addresses: print('ready', flush=True)))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ready\nthe rest\n"), done.stderr[-2000:]
