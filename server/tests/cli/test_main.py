"""The command line: what is printed, what is run with which settings, and the exit codes."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Timer

import pytest

from barnabas.replication import TopicRequest
from barnabas.server.broker import process
from barnabas.server.cli import main as cli
from barnabas.server.cli.client import client_arguments
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime import program
from barnabas.server.settings.endpoints import ListenAddress
from barnabas.server.tests.runtime.test_logs import restored  # noqa: F401  # the log set-up is undone after each test

ROOT = Path(__file__).resolve().parents[3]


class Runs:
    """Stands for `barnabas.server.broker.process.run`: keeps the settings it was given and says that it is ready."""

    def __init__(self) -> None:
        self.configs: list[BrokerConfig] = []
        self.topics: list[str] = []
        self.code = 0
        self.log_dir_existed = False

    def __call__(
        self,
        config: BrokerConfig,
        ready: process.Ready,
        topics: Sequence[TopicRequest] = (),
        *,
        control: ListenAddress | None = None,
        clock_ahead_s: float = 0.0,
        console_ready: Callable[[str], None],
    ) -> int:
        self.configs.append(config)
        self.clock_ahead_s = clock_ahead_s
        self.topics += [f"{topic.name}:{topic.partitions}:{topic.replication_factor}" for topic in topics]
        self.log_dir_existed = Path(config.log_dir).is_dir()
        metrics = "http://127.0.0.1:4712" if config.is_set("metrics.listener") else None
        ready(process.Addresses("127.0.0.1:4711", metrics, None if control is None else f"http://{control.host}:4713"))
        if config.is_set("console.listener"):
            console_ready("http://127.0.0.1:4714")
        return self.code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(process, "run", runs)
    return runs


def call(*arguments: str, **environ: str) -> int:
    return cli.main(arguments, environ)


# -- serve ------------------------------------------------------------------------------------------------------------


def test_serve_takes_settings_from_everywhere(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nbroker.rack=file\nlog.dirs=/data\n")
    assert call("serve", str(file), "--set", "log.dirs=/other", "--set", "broker.id=7", KAFKA_BROKER_RACK="env") == 0
    (config,) = runs.configs
    assert (config.get_int("num.partitions"), config.rack, config.log_dir, config.broker_id) == (2, "env", "/other", 7)


def test_serve_without_anything(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serve") == 0
    (config,) = runs.configs
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://localhost:9092"]
    assert [str(each) for each in config.advertised({}, "this.host")] == ["PLAINTEXT://localhost:9092"]
    assert config.get_int("group.initial.rebalance.delay.ms") == 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "INFO" in line]
    assert len(lines) == 2
    assert "listening for clients on this machine only" in lines[0]
    assert "--set listeners=PLAINTEXT://:9092" in lines[0]
    assert "group.initial.rebalance.delay.ms=0; with a file it is 3000" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "environ", "listener", "delay_ms", "lines"),
    [
        (("--set", "listeners=PLAINTEXT://:0"), {}, "PLAINTEXT://:0", 0, 1),
        ((), {"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:1"}, "PLAINTEXT://0.0.0.0:1", 0, 1),
        (("--set", "advertised.listeners=PLAINTEXT://here:9092"), {}, "PLAINTEXT://:9092", 0, 1),
        (("--set", "zookeeper.connect=z:2181"), {}, "PLAINTEXT://:9092", 3000, 0),
        (("--set", "group.initial.rebalance.delay.ms=5"), {}, "PLAINTEXT://localhost:9092", 5, 1),
        (("FILE",), {}, "PLAINTEXT://:9092", 3000, 0),
    ],
)
def test_what_is_said_is_not_replaced(
    arguments: tuple[str, ...],
    environ: dict[str, str],
    listener: str,
    delay_ms: int,
    lines: int,
    runs: Runs,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    assert call("serve", *(str(file) if each == "FILE" else each for each in arguments), **environ) == 0
    (config,) = runs.configs
    assert [str(each) for each in config.listeners] == [listener]
    assert config.get_int("group.initial.rebalance.delay.ms") == delay_ms
    assert capsys.readouterr().err.count("no settings file") == lines


def test_serve_without_the_environment(runs: Runs) -> None:
    assert call("serve", "--no-env", KAFKA_BROKER_RACK="env") == 0
    assert runs.configs[0].rack is None


def test_the_brokers_exit_code_is_ours(runs: Runs) -> None:
    runs.code = 1
    assert call("serve") == 1


def test_first_topics(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {"KAFKA_CREATE_TOPICS": "a:1:1, b:2:1"}
    assert call("serve", **wanted) == 0
    assert call("serve", "--no-env", **wanted) == 0
    assert call("dev", "--topic", "c", "--topic", "d:4", **wanted) == 0
    assert runs.topics == ["a:1:1", "b:2:1", "c:-1:-1", "d:4:-1"]
    assert "create.topics" not in capsys.readouterr().err
    assert call("serve", KAFKA_CREATE_TOPICS="a:one") == 2
    assert call("dev", "--topic", "c:0") == 2
    refused, by_dev = capsys.readouterr().err.splitlines()
    assert refused.startswith("barnabas: KAFKA_CREATE_TOPICS=a:one is refused: 'a:one' must be written as NAME:")
    assert by_dev.startswith("barnabas: --topic: 'c:0' must be written as NAME:")


def test_notices_are_logged_first(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    call("serve", "--set", "num.io.threads=3", "--set", "no.such=1", "--log-format", "json")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    lines = [line for line in lines if line["level"] != "INFO"]
    assert [(line["level"], line["logger"]) for line in lines] == [("WARN", "barnabas.config")] * 2
    assert lines[0]["message"].startswith("num.io.threads=3 has no effect here: ")
    assert lines[1]["message"] == "no.such=1 is unknown and is ignored (--set)"


REFUSED = [
    (["--set", "process.roles=controller"], "barnabas: process.roles=controller is refused: "),
    (["--set", "num.partitions"], "barnabas: --set num.partitions is refused: it must be written as key=value."),
    (["/no/such/file"], "barnabas: /no/such/file cannot be read: No such file or directory"),
    (["--log-level", "loud"], "barnabas: --log-level or --logger: 'loud' is not a level"),
    (["--logger", "network"], "barnabas: --logger network must be written as NAME=LEVEL"),
    (["--logger", "network=loud"], "barnabas: --log-level or --logger: 'loud' is not a level"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_serve_refuses(runs: Runs, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert call("serve", *arguments) == 2
    assert runs.configs == []
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_all_refusals_at_once(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serve", "--set", "process.roles=controller", "--set", "num.partitions=0") == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_bad_properties_file(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("a=b\nc=\\u12\n")
    assert call("serve", str(file)) == 2
    assert f"{file}, line 2: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--nonsense"],
        ["nonsense"],
        ["dev", "--port", "x"],
        ["dev", "--port", "70000"],
        ["cluster", "--brokers", "0"],
        ["cluster", "--brokers", "65"],
        ["store"],
    ],
)
def test_wrong_command_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call(*arguments)
    assert caught.value.code == 2
    assert "usage: barnabas" in capsys.readouterr().err


def options(command: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The options of all commands that look at their value: (command, option)."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from options(below, (*path, name))
        elif action.type not in (None, client_arguments.name) and action.option_strings:
            yield path, action.option_strings[-1]  # behind its letter, if it has one


@pytest.mark.parametrize("value", ["abc", "", "9" * 5000, "²", "-1e3"])
def test_options_speak_of_their_values(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not of what a function of ours is called."""
    found = list(options(cli.parser()))
    assert {(("dev",), "--port"), (("log", "dump"), "--limit")} <= set(found)
    for command, option in found:
        with pytest.raises(SystemExit):
            call(*command, f"{option}={value}", "x")
        err = capsys.readouterr().err
        assert re.search(rf"error: argument (-\w/)?{option}: ", err), err
        assert "invalid" not in err


def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call("dev", "--port", "abc")
    assert capsys.readouterr().err.endswith("argument --port: a number from 0 to 65535 is expected, not 'abc'\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "broker.id=1"], "broker.id=1 is refused: barnabas cluster gives each broker its own."),
        (["--set", "num.partitions=0"], "num.partitions=0 is refused: it must be at least 1 (--set)."),
        (["--topic", "no way"], "--topic: 'no way': "),
        (["--user", "a:b"], "--user and --security-files have no effect without --security"),
        (["no.such.file"], "no.such.file cannot be read: No such file or directory"),
        (["--logger", "x"], "--logger x must be written as NAME=LEVEL"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ",
)
def test_cluster_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything starts."""
    assert call("cluster", *arguments) == 2
    assert capsys.readouterr().err.startswith(f"barnabas: {message}")


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    assert "barnabas serve" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"barnabas {program.version()}\n"


# -- dev --------------------------------------------------------------------------------------------------------------


def test_dev_announces_itself_and_cleans_up(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dev", "--set", "num.partitions=3", KAFKA_NUM_PARTITIONS="9") == 0
    assert capsys.readouterr().out == "bootstrap=127.0.0.1:4711\n"
    (config,) = runs.configs
    assert str(config.listeners[0]) == "PLAINTEXT://127.0.0.1:0"
    assert config.get_int("num.partitions") == 3
    assert config.get_int("group.initial.rebalance.delay.ms") == 0
    assert runs.log_dir_existed
    assert not Path(config.log_dir).exists()


def test_dev_says_where_metrics_are(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dev", "--set", "metrics.listener=http://127.0.0.1:0") == 0
    assert capsys.readouterr().out == "bootstrap=127.0.0.1:4711\nmetrics=http://127.0.0.1:4712\n"


def test_dev_with_a_clock_that_is_ahead(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert (call("dev", "--control", "--clock-ahead", "86400.25"), runs.clock_ahead_s) == (0, 86400.25)
    assert (call("dev", "--clock-ahead", "1"), "no effect without" in capsys.readouterr().err) == (2, True)


def test_dev_says_where_its_console_is(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dev", "--console") == 0
    assert capsys.readouterr().out == "bootstrap=127.0.0.1:4711\nconsole=http://127.0.0.1:4714\n"
    assert runs.configs[0].get_str("console.listener") == "http://127.0.0.1:0"


def test_dev_cleans_up_when_refused(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert call("dev", "--set", "num.partitions=0") == 2
    assert list(tmp_path.iterdir()) == []


def test_dev_keeps_the_data_in_the_given_directory(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    (tmp_path / "data").mkdir()
    assert call("dev", "--data", str(tmp_path / "data")) == 0
    assert runs.configs[0].log_dir == str(tmp_path / "data")
    assert runs.log_dir_existed
    assert (tmp_path / "data").is_dir()


def test_dev_on_a_port(runs: Runs) -> None:
    call("dev", "--port", "9999")
    assert runs.configs[0].listeners[0].port == 9999


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_dev_for_real(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "barnabas" / "__main__.py"), "dev"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("bootstrap=127.0.0.1:"), process.communicate()[1]
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


SIGNALLED = """
import os, signal, sys
from barnabas.server.cli import main as cli
from barnabas.server.broker import process
from barnabas.server.runtime import signals
sys.argv = sys.argv[1:]
signals.leave_at_once()
if sys.argv[1] == "dev":
    process.run = lambda *given, **more: os.kill(os.getpid(), signal.{name}) or signal.pause()
else:
    os.kill(os.getpid(), signal.{name})
cli.run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("command", "code"), [("serve", 0), ("dev", 0), ("config", 128)])
def test_stopped_before_the_broker_is_ready(tmp_path: Path, number: signal.Signals, command: str, code: int) -> None:
    """No traceback, nothing left behind, and the exit code of any stop; what was to find something out has failed."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED.format(name=number.name), "barnabas", command],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code and code + number, "", "")
    assert list(tmp_path.iterdir()) == []


IMPORTED = "import time:"
OURS_IS_UP = re.compile(rf"{IMPORTED}.*\bserver\.(\w+\.)*signals$")
"""What `-X importtime` says when the module that handles signals is there."""
MOMENTS = 10


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_at_any_moment(tmp_path: Path, number: signal.Signals) -> None:
    """From the first lines of ours on, while modules are imported and after that: quietly, and nothing is left behind.

    Before, while Python starts and its own modules are imported, it may say "KeyboardInterrupt", or even swallow it.
    """
    imports = _told_to_stop(tmp_path, signal.SIGTERM, None, 1)
    assert imports > 10 * MOMENTS
    for after in range(1, imports, imports // MOMENTS):
        _told_to_stop(tmp_path, number, after, 0)
    for pause_s in (0, 0.005, 0.02, 0.05, 0.1):
        _told_to_stop(tmp_path, number, imports, pause_s)


def _told_to_stop(directory: Path, number: signal.Signals, after: int | None, pause_s: float) -> int:
    """Start a broker and stop it *pause_s* after that many imports behind the first lines of ours (None: when it is
    there). How many imports there were.
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", str(ROOT / "barnabas" / "__main__.py"), "dev"],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        if after is None:
            assert process.stdout.readline().startswith("bootstrap=")
        else:
            while not OURS_IS_UP.match(line := process.stderr.readline().rstrip()):
                assert line.startswith(IMPORTED), line
            for _ in range(after - 1):
                process.stderr.readline()
        time.sleep(pause_s)
        process.send_signal(number)
        too_late = Timer(60, process.kill)
        too_late.start()
        # What the streams have read ahead, perhaps half a line, is not in the answer of `communicate`.
        err, out = process.stderr.read(), process.stdout.read()
        too_late.cancel()
    said = [line for line in err.splitlines() if not line.startswith(IMPORTED)]
    assert (process.returncode in (0, -number), said) == (True, []), after
    assert not out or out.startswith("bootstrap=")
    assert list(directory.iterdir()) == []
    imports = [line for line in err.splitlines() if line.startswith(IMPORTED)]
    return len(imports) - next((index for index, line in enumerate(imports) if OURS_IS_UP.match(line)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["closed", "/dev/full"])
def test_the_address_is_not_read(target: str, tmp_path: Path) -> None:
    """`barnabas dev | head -0` ends quietly; what cannot be written is said in a sentence."""
    command = [sys.executable, str(ROOT / "barnabas" / "__main__.py"), "dev"]
    if target == "closed":
        end, out = os.pipe()
        os.close(end)
    else:
        out = os.open(target, os.O_WRONLY)
    done = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(out)
    if target == "closed":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 1
        assert done.stderr.endswith("FATAL broker: standard output cannot be written: no space left on device\n")
    assert list(tmp_path.iterdir()) == []


# -- config -----------------------------------------------------------------------------------------------------------


def test_config_shows_what_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        call("config", "--set", "log.dirs=/data", "--set", "password.encoder.secret=hunter2", KAFKA_BROKER_RACK="r")
        == 0
    )
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "broker.rack=r  # static broker",
        "group.initial.rebalance.delay.ms=0  # default without a file",
        "listeners=PLAINTEXT://localhost:9092  # default without a file",
        "log.dirs=/data  # static broker",
        "password.encoder.secret=(hidden)  # static broker",
    ]
    assert "hunter2" not in err
    assert "password.encoder.secret=[hidden] has no effect here" in err


def test_config_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "log.retention.ms", "log.retention.hours") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "log.retention.hours=168  # default"
    assert lines[1].startswith("    Like log.retention.ms, in hours")
    assert lines[2] == "log.retention.ms=(not set)  # default"


def test_config_of_unknown_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "no.such") == 2
    assert capsys.readouterr().err == "barnabas: unknown setting: no.such\n"


def test_config_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) > 380


def test_config_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nnum.io.threads=4\nlisteners=PLAINTEXT://localhost:9092\n")
    assert call("config", "--check", str(file), KAFKA_NUM_PARTITIONS="x") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0].startswith("warning: num.io.threads=4 has no effect here: ")
    assert out.splitlines()[1] == f"{file} can be used (3 settings, 0 refusals, 1 warning)"
    file.write_text("process.roles=controller\n")
    assert call("config", "--check", str(file)) == 2
    assert "(server.properties line 1)" in capsys.readouterr().err


def test_config_check_says_all_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "num.partitons=3\n"
        "num.io.threads=4\n"
        "listeners=SSL://:9093,SASL_SSL://:9094,nonsense\n"
        "advertised.listeners=nonsense\n"
        "num.partitions=0\n"
        "log.retention.ms=soon\n"
        "zookeeper.connect=zookeeper:port\n"
        "zookeeper.ssl.client.enable=true\n"
        f"zookeeper.ssl.truststore.location={tmp_path}/none.pem\n"
        f"zookeeper.ssl.keystore.location={tmp_path}/keys.jks\n"
    )
    assert call("config", "--check", str(file)) == 2
    out, err = capsys.readouterr()
    *warnings, verdict = out.splitlines()
    assert [text.split("=")[0] for text in warnings] == ["warning: num.partitons", "warning: num.io.threads"]
    assert verdict == f"{file} cannot be used (10 settings, 7 refusals, 2 warnings)"
    assert [text.split("=")[0] for text in err.splitlines()] == [
        "barnabas: num.partitions",
        "barnabas: log.retention.ms",
        "barnabas: listeners",
        "barnabas: advertised.listeners",
        "barnabas: zookeeper.ssl.truststore.location",
        "barnabas: zookeeper.ssl.keystore.location",
        "barnabas: zookeeper.connect",
    ]


def test_the_settings_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "--markdown") == 0
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == capsys.readouterr().out, "print it again: python -m barnabas config --markdown > docs/settings.md"


def test_output_that_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, str(ROOT / "barnabas" / "__main__.py"), "config", "--all"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "barnabas: standard output cannot be written: no space left on device\n",
    )


# -- the face ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [["stranger", "ours"], ["stranger"], ["ours"], []])
def test_started_by_its_path_it_is_this_copy(tmp_path: Path, paths: list[str]) -> None:
    """As `barnabas.Broker` starts it: not what comes first on the path under its name."""
    (tmp_path / "barnabas").mkdir()
    (tmp_path / "barnabas" / "__init__.py").write_text("raise SystemExit('the wrong one ran')")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join({"stranger": str(tmp_path), "ours": str(ROOT)}[each] for each in paths),
    }
    for safe_path in ([], ["-P"]):
        command = [sys.executable, *safe_path, str(ROOT / "barnabas" / "__main__.py"), "--version"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"barnabas {program.version()}\n", "")


def test_a_checkout_without_symbolic_links_runs(tmp_path: Path) -> None:
    """Git on Windows, and some who unpack archives, make text files of links."""
    (tmp_path / "barnabas").mkdir()
    for path in (ROOT / "barnabas").iterdir():
        if path.is_symlink():
            (tmp_path / "barnabas" / path.name).write_text(str(path.readlink()))
            (tmp_path / path.name).symlink_to(ROOT / path.name)
        elif path.is_file():
            shutil.copy(path, tmp_path / "barnabas")
    command = [sys.executable, "-P", str(tmp_path / "barnabas" / "__main__.py"), "config", "num.partitions"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "num.partitions" in done.stdout
