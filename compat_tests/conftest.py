"""Options, the broker under test, unique names and the matrix. See the package docstring for how to start the suite."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("compat_tests.cases", "compat_tests.harness.checks")

from compat_tests.clients.tools_cli.warm import WarmJvms  # noqa: E402
from compat_tests.harness import dump_log  # noqa: E402
from compat_tests.harness.brokers import (  # noqa: E402
    QUICK,
    Broker,
    start_barnabas,
    start_kafka,
    wait_for_groups,
    wait_until_open,
)
from compat_tests.harness.jars import NO_JVM  # noqa: E402
from compat_tests.harness.matrix import PROPERTY, Matrix, Place, declared_absent  # noqa: E402
from compat_tests.runner.preflight import jdk  # noqa: E402

BROKER_NAME = pytest.StashKey[str]()
NAMES = re.compile("[^a-zA-Z0-9._-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which broker to test, and where to write the matrix."""
    group = parser.getgroup("compat", "conformance suite")
    group.addoption(
        "--bootstrap", metavar="HOST:PORT", help="test the broker that listens there instead of starting ours"
    )
    group.addoption("--peer", choices=["kafka"], help="test Apache Kafka instead of ours: one 4.3.1, clusters of 3.9.1")
    group.addoption(
        "--broker-set", action="append", default=[], metavar="KEY=VALUE", help="a setting for the started broker"
    )
    group.addoption("--rounds", type=int, default=0, metavar="N", help="rounds of faults on a cluster (default: a few)")
    group.addoption("--fault-seed", type=int, metavar="N", help="the seed that an end to end test of eos/ printed")
    group.addoption(
        "--dump-log-mib",
        type=int,
        default=256,
        metavar="N",
        help="how much of the logs that our brokers left Apache Kafka's DumpLogSegments looks through at the end",
    )
    group.addoption("--matrix", metavar="FILE", help="write the matrix client x case there, as Markdown")
    group.addoption("--matrix-name", metavar="NAME", help="what the heading of the matrix calls the broker")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and let the matrix listen."""
    config.addinivalue_line("markers", "case(area, title, client): the place of a test's result in the matrix")
    config.addinivalue_line("filterwarnings", "ignore:.*_text is deprecated:DeprecationWarning")
    for library in ("kafka", "aiokafka", "confluent_kafka", "pyspark"):
        # What these libraries call that Python means to drop is not for us to mend.
        for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", rf"ignore::{kind}:{library}(\..*)?")
    config.pluginmanager.register(MatrixPlugin(config), "compat-matrix")


class MatrixPlugin:
    """Gathers the matrix from reports; prints and writes it at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.matrix = Matrix()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Give every chosen test its place, as a property of its reports; gather what modules declare as absent."""
        for item in session.items:
            marker = item.get_closest_marker("case")
            if marker is not None:
                place = Place(*marker.args, **marker.kwargs)
                item.user_properties.append((PROPERTY, place.encode()))
                self.matrix.expect(place)
        self.matrix.declare(declared_absent(session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome: a test fails in any phase, passes in its call phase."""
        if report.skipped or not (report.failed or report.when == "call"):
            return
        for key, value in report.user_properties:
            if key == PROPERTY:
                self.matrix.record(Place.decode(str(value)), report.passed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts, and write the matrix where `--matrix` says."""
        if not any(self.matrix.counts()):
            return
        passed, failed = self.matrix.counts()
        terminalreporter.write_line(f"conformance matrix: {passed} cases passed, {failed} failed")
        name = self.config.getoption("--matrix-name") or self.config.stash.get(BROKER_NAME, _broker_kind(self.config))
        text = self.matrix.markdown(f"Stock clients against {name}")
        if self.config.getoption("--matrix"):
            path = Path(self.config.getoption("--matrix"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _broker_kind(config: pytest.Config) -> str:
    if config.getoption("--bootstrap"):
        return str(config.getoption("--bootstrap"))
    return "Apache Kafka 4.3.1" if config.getoption("--peer") == "kafka" else "Barnabas"


@pytest.fixture(scope="session", autouse=True)
def _sound_directories(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """At the end Apache Kafka's DumpLogSegments finds nothing wrong in what our brokers left under pytest's directory.

    It fails in the last test's teardown, and names the files. What is too much to look at is left out, oldest first; a
    session without slow tests starts no JVM for that.
    """
    yield
    if not any(item.get_closest_marker("slow") for item in request.session.items):
        return
    if jdk(os.environ).missing:
        # Tests that start no JVM run without one. `run.py test` says what was left out.
        return
    # This is no part of the last test, which may be one without a JVM, and whose time is not for this: it takes more
    # than a minute on a slow machine.
    os.environ.pop(NO_JVM, None)
    for item in request.session.items:
        if hasattr(item, "cancel_timeout"):
            item.config.hook.pytest_timeout_cancel_timer(item=item)
    chosen = dump_log.within(
        dump_log.log_directories(tmp_path_factory.getbasetemp()), request.config.getoption("--dump-log-mib") << 20
    )
    complaints = dump_log.complaints(chosen)
    if complaints:
        lines = "\n".join(complaints[:60])
        pytest.fail(f"DumpLogSegments has {len(complaints)} complaints about directories left:\n{lines}", pytrace=False)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test: a running one, Apache Kafka, or ours; one for the whole session."""
    config = request.config
    settings = config.getoption("--broker-set")
    if config.getoption("--bootstrap"):
        started = Broker(config.getoption("--bootstrap"), config.getoption("--bootstrap"))
        wait_until_open(started, 60)
    elif config.getoption("--peer") == "kafka":
        os.environ.pop(NO_JVM, None)  # whoever chooses this broker has a JVM, also for tests that start none
        started = start_kafka(tmp_path_factory.mktemp("kafka"), settings)
        wait_for_groups(started.bootstrap)
    else:
        directory = tmp_path_factory.mktemp("barnabas")
        started = start_barnabas(directory, [f"log.dirs={directory / 'data'}", *QUICK, *settings])
    config.stash[BROKER_NAME] = started.name
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def warm_jvms() -> Iterator[WarmJvms]:
    """JVMs in which command-line tools run one after the other."""
    with WarmJvms() as jvms:
        yield jvms


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """`HOST:PORT` of the broker under test."""
    return broker.bootstrap


@pytest.fixture(autouse=True)
def _broker_alive(request: pytest.FixtureRequest) -> Iterator[None]:
    """A broker that died explains itself in the test during which it died."""
    yield
    if "broker" in request.fixturenames or "bootstrap" in request.fixturenames:
        broker: Broker = request.getfixturevalue("broker")
        if broker.process is not None and broker.process.poll() is not None:
            pytest.fail(f"the broker ended with {broker.process.returncode}:\n{broker.log_tail()}", pytrace=False)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make names for topics and groups that nobody used before, also not on a broker that has run for months."""
    stem = NAMES.sub("-", request.node.name.removeprefix("test_"))[:60].strip("-.")

    def make(suffix: str = "") -> str:
        tail = f"-{suffix}" if suffix else ""
        return f"compat-{stem}-{secrets.token_hex(4)}{tail}"

    return make
