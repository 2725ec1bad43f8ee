"""`barnabas.Broker`, a broker as a child process. Every test here starts a real one, or one that cannot start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barnabas
from barnabas import BrokerError
from barnabas.child import reserve
from barnabas.kproto import ApiKey, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import MetadataRequest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def partitions_of_new_topic(bootstrap: str, name: str = "events") -> int:
    """Ask for a topic until it is there; how many partitions it has."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + 60  # the disk may be busy
    with socket.create_connection((host, int(port)), timeout=60) as sock, sock.makefile("rb") as answers:
        correlation_id = 0
        while time.monotonic() < deadline:
            correlation_id += 1
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            sock.sendall(request_frame(9, correlation_id, "test", request))
            frame = answers.read(int.from_bytes(answers.read(4), "big"))
            _, offset = parse_response_header(ApiKey.METADATA, 9, frame)
            (topic,) = decode(response_class(ApiKey.METADATA), 9, frame, offset).topics
            if topic.partitions:
                return len(topic.partitions)
    raise AssertionError("the topic is not created")


def gone(pid: int) -> bool:
    """No such process, or a dead one that was not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pid: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} lives"
        os.sched_yield()


def test_a_life() -> None:
    broker = barnabas.Broker(settings={"num.partitions": 3, "auto.create.topics.enable": True})
    with pytest.raises(barnabas.BrokerError, match="was not started"):
        _ = broker.bootstrap
    with broker as same:
        assert same is broker
        bootstrap, pid, data = broker.bootstrap, broker.pid, broker.data
        assert partitions_of_new_topic(bootstrap) == 3
        with pytest.raises(barnabas.BrokerError, match="running already"):
            broker.start()

        broker.restart()
        assert (data / "events-2").is_dir()
        assert broker.bootstrap == bootstrap
        assert broker.pid != pid
        assert gone(pid)
        assert (data / ".kafka_cleanshutdown").exists() is False  # taken away by the start that found it
        assert partitions_of_new_topic(bootstrap) == 3

        broker.kill()
        assert not broker.running
        with pytest.raises(barnabas.BrokerError, match="not running"):
            _ = broker.pid
        broker.stop()  # nothing left to do
        broker.start()
        assert broker.bootstrap == bootstrap
        assert partitions_of_new_topic(bootstrap) == 3
        pid = broker.pid
    assert gone(pid)
    assert not data.exists()
    assert "not running" in repr(broker)


@pytest.mark.parametrize("topics", [["orders:4", "clicks"], {"orders": 4, "clicks": 2}])
def test_topics_from_the_start(topics: list[str] | dict[str, int]) -> None:
    settings = {"num.partitions": 2, "auto.create.topics.enable": False}
    with barnabas.Broker(settings, topics=topics) as broker:
        assert partitions_of_new_topic(broker.bootstrap, "orders") == 4
        broker.restart()
        assert partitions_of_new_topic(broker.bootstrap, "clicks") == 2
        assert "cannot create topic" not in broker.log


def test_topics_that_cannot_be() -> None:
    with pytest.raises(barnabas.BrokerError, match="'no way' contains"):
        barnabas.Broker(topics=["no way"]).start()
    with pytest.raises(TypeError, match="are a list or a dictionary"):
        barnabas.Broker(topics="orders")


def test_topics_and_groups_go_between_tests() -> None:
    with barnabas.Broker({"auto.create.topics.enable": False}, topics=["first"]) as broker:
        broker.create_topic("second", 3, {"retention.ms": 1000})
        assert partitions_of_new_topic(broker.bootstrap, "second") == 3
        with pytest.raises(barnabas.BrokerError, match="topic second was not created"):
            broker.create_topic("second")
        broker.delete_topic("second")
        broker.delete_topic("never")
        broker.create_topic("second")
        broker.reset()
        for name in ("first", "second"):
            broker.create_topic(name, 2)
            assert partitions_of_new_topic(broker.bootstrap, name) == 2
    with pytest.raises(barnabas.BrokerError, match="no connection to"):
        broker.reset()


def test_the_port_stays_ours_while_the_broker_is_down() -> None:
    with barnabas.Broker() as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        broker.stop()
        with pytest.raises(OSError), socket.socket() as other:
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60)
        broker.start()
        socket.create_connection(("127.0.0.1", port), timeout=60).close()


def test_data_and_port_of_the_callers_choice(tmp_path: Path) -> None:
    with reserve(0) as ours:  # nobody else is given it between its two uses
        port = ours.getsockname()[1]
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(barnabas.BrokerError, match=f"port {port} cannot be used"),
            barnabas.Broker(port=port),
        ):
            pass
        with barnabas.Broker(data=tmp_path / "kept", port=port) as broker:
            assert broker.bootstrap == f"127.0.0.1:{port}"
            partitions_of_new_topic(broker.bootstrap)
    assert (tmp_path / "kept" / "events-0").is_dir()
    assert (tmp_path / "kept" / ".kafka_cleanshutdown").is_file()


def test_refused_settings() -> None:
    broker = barnabas.Broker({"num.partitions": 0})
    with pytest.raises(barnabas.BrokerError) as caught, broker:
        pass
    assert str(caught.value) == (
        "the broker refuses its settings; the end of its log:\n"
        "barnabas: num.partitions=0 is refused: it must be at least 1 (--set)."
    )
    with pytest.raises(ValueError, match="data=DIRECTORY"):
        barnabas.Broker({"log.dirs": "/data"})


def test_a_broker_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(barnabas.BrokerError, match=r"did not start \(exit code 1\); the end of its log:\n.*file"),
        barnabas.Broker(data=tmp_path / "file"),
    ):
        pass


def test_too_slow_a_start() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"not ready after 0.001 s"), barnabas.Broker(timeout_s=0.001):
        pass


def test_a_broker_that_ends_by_itself_is_reported() -> None:
    broker = barnabas.Broker()
    broker.start()
    data = broker.data
    kill_behind_its_back(broker)
    with pytest.raises(barnabas.BrokerError, match=r"the broker had ended by itself \(signal 9\)"):
        broker.stop()
    broker.start()
    kill_behind_its_back(broker)
    with pytest.raises(barnabas.BrokerError, match="had ended by itself"):
        broker.close()
    assert not data.exists()


def test_a_broker_that_does_not_stop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.process.STOP_S", 0.05)
    with barnabas.Broker() as broker:
        os.kill(broker.pid, signal.SIGSTOP)
        with pytest.raises(barnabas.BrokerError, match=r"did not stop within 0.05 s and was killed"):
            broker.stop()


def test_the_tests_own_error_comes_first() -> None:
    with pytest.raises(ZeroDivisionError) as caught, barnabas.Broker() as broker:
        kill_behind_its_back(broker) or 1 / 0
    assert "had ended by itself (signal 9)" in caught.value.__notes__[0]


def kill_behind_its_back(broker: barnabas.Broker) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while broker.running:
        assert time.monotonic() < deadline
        os.sched_yield()


PARENT = """
import sys, barnabas
broker = barnabas.Broker(data=sys.argv[1] or None).start()
print(broker.pid, broker.data, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("how", ["killed", "left"])
def test_it_does_not_outlive_its_parent(tmp_path: Path, how: str, kept: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "kept") if kept else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, data = parent.stdout.readline().split()
        assert Path(data).is_dir()
        if how == "killed":
            parent.kill()
        else:
            parent.communicate("")  # without having stopped the broker
    wait_until_gone(int(pid))
    assert Path(data).exists() is kept
    # Nothing is left but, after a kill, the log of a broker whose data were to be kept.
    left = [path.name for path in tmp_path.iterdir() if path.name != "kept"]
    assert len(left) == (kept and how == "killed"), left


def test_packages_of_our_names_and_other_worries(tmp_path: Path) -> None:
    """The caller has a `server` package and others, first on every path, and wants all warnings to be errors."""
    for name in ("server", "kproto", "logdir", "coordinator", "replication", "process"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\nprint('imported', __name__)\n")
    code = (
        "import barnabas, server, kproto\n"
        "assert server.mine and kproto.mine\n"
        "with barnabas.Broker() as broker: print(broker.bootstrap.partition(':')[0])\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "PYTHONWARNINGS": "error",
        "KAFKA_NUM_PARTITIONS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("imported server\nimported kproto\n127.0.0.1\n", "")


def test_what_the_face_costs() -> None:
    """Importing it and making a `Broker` loads nothing of the broker."""
    code = (
        "import sys, barnabas; barnabas.Broker(); "
        "print(sorted({'trio', 'barnabas.server', 'barnabas.kproto', 'asyncio', 'pytest'} & set(sys.modules)))"
    )
    environment = {"PATH": "/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_windows_users_get_a_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        barnabas.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "barnabas: the broker does not run on Windows itself; run it in WSL\n"
    with pytest.raises(BrokerError, match="run the tests in WSL"):
        barnabas.Broker().start()
