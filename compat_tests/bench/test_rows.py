"""Each row measured once with little work: that clients, requests and bookkeeping are right. Its numbers say nothing.

Against our broker, or Apache Kafka with `--peer kafka`. Rows of one place come one after the other and share its
brokers, as in a run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.bench.__main__ import main
from compat_tests.bench.brokers import KAFKA, OURS, Side, Subject
from compat_tests.bench.loads.java_client import JavaClient
from compat_tests.bench.loads.values import SMALL, Values
from compat_tests.bench.machine.processes import family, processes
from compat_tests.bench.measures.context import ENVIRONMENT, Context, Scale
from compat_tests.bench.measures.places import PLACES
from compat_tests.bench.results import CPU, read
from compat_tests.bench.rows import OWN, ROWS, Row
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import Background, Failed

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


@pytest.fixture(scope="module")
def side(request: pytest.FixtureRequest) -> Side:
    """The broker that is asked for."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("brokers of its own are measured")
    return Side(KAFKA if request.config.getoption("--peer") == "kafka" else OURS)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """Little work, and one JVM for all clients."""
    directory = tmp_path_factory.mktemp("bench")
    java = JavaClient(directory / "java-client.log")
    yield Context(directory, Scale.quick(), Values(directory / "values"), java)
    java.stop()


@pytest.fixture(scope="module")
def subject(side: Side, context: Context) -> Iterator[Callable[[str], Subject]]:
    """The brokers of a place; those of the place before are stopped."""
    current: dict[str, Subject] = {}

    def of(place: str) -> Subject:
        if place not in current:
            while current:
                current.popitem()[1].stop()
            current[place] = PLACES[place](side, context.directory / place)
        return current[place]

    yield of
    while current:
        current.popitem()[1].stop()


def rows() -> list[Row]:
    """By place."""
    order = list(dict.fromkeys(row.place for row in ROWS))
    return sorted(ROWS, key=lambda row: order.index(row.place))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_row(row: Row, side: Side, context: Context, subject: Callable[[str], Subject]) -> None:
    values = row.measure(context, side if row.place == OWN else subject(row.place))
    for quantity in row.headline:
        if quantity.name != "resident_mb" or row.place == OWN:
            assert values[quantity.name] > 0, values
    assert all(values[name] >= 0 for name in CPU if name in values)


def test_what_is_refused_is_no_measurement(context: Context, subject: Callable[[str], Subject]) -> None:
    one = subject("plain")
    narrow = one.new_topic(1, max_message_bytes="100")
    with pytest.raises(Failed, match=r"produce: .*RecordTooLargeException"):
        context.java.ask("produce", one.clients, narrow, context.values.file(SMALL), 1, 0)
    with one.topic(1) as topic:
        context.python("librdkafka", "produce", one.clients, topic, context.values.file(SMALL), 10)
        with pytest.raises(Failed, match=r"exit status 1\n.*bytes were read, and not 7"):
            context.python("librdkafka", "consume", one.clients, topic, 10, 7, 1)
        with pytest.raises(Failed, match="bytes were read, and not 7"):
            context.java.ask("consume", one.clients, topic, 10, 7, 1)


def test_the_java_client_is_started_again_after_it_died(context: Context, subject: Callable[[str], Subject]) -> None:
    one = subject("plain")
    assert context.java.process is not None
    context.java.process.kill()
    with one.topic(1) as topic:
        words = ("produce", one.clients, topic, context.values.file(SMALL), 10, 0)
        with pytest.raises(Failed, match="the Java client has ended"):
            context.java.ask(*words)
        assert context.java.ask(*words)["bytes"] == context.values.total_bytes(SMALL, 10)


def test_the_command_measures_a_checkout_against_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one, both times."""
    for variable in ("BARNABAS_PURE", "BARNABAS_COMMAND"):
        monkeypatch.setenv(variable, "")  # what the command sets is taken back
    file = tmp_path / "a.json"
    arguments = ["--quick", "--before", str(PROJECT_ROOT), "--only", "Produce v13, one record", "--only", "start, then"]
    assert main([*arguments, "--json", str(file), "--pure"]) == 0
    found = read(file)
    assert set(found.rows) == {"Produce v13, one record", "Produce v13, one record, by ACL", "start, then idle"}
    for rounds in found.rows.values():
        assert [set(one.values) for one in rounds] == [{"before", "barnabas"}]
    said = capsys.readouterr().out
    assert "| measure | unit | before | Barnabas |" in said
    assert "Quick: these numbers say nothing." in said
    assert main([*arguments, "--json", str(file), "--pure", "--resume"]) == 0
    assert read(file).rows == found.rows, "nothing was wanted any more"
    with pytest.raises(SystemExit):
        main(["--quick", "--only", "start, then", "--json", str(file), "--resume"])
    assert "other brokers, or another processor, were measured for it" in capsys.readouterr().err
    assert main(["--only", "no such row"]) == 2


def test_the_command_leaves_no_broker_behind_when_it_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "compat_tests.bench", "--quick", "--alone", "barnabas", "--only", "KIP-848"]
    with Background([*command, "--directory", str(tmp_path)], {**os.environ, **ENVIRONMENT}) as bench:
        bench.wait_for("plain: barnabas is up")
        descendants = list(family(bench.process.pid, processes()))
        assert len(descendants) > 1
        assert bench.stop(timeout=120) == 128 + signal.SIGTERM  # it stops a broker, and a client may be under way
    assert list(tmp_path.iterdir()) == []
    assert not set(descendants) & set(processes())
