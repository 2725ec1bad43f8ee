"""A broker in your pytest suite; loaded by pytest by itself once Barnabas is installed.

    def test_words(kafka_broker):                      # one broker for the whole run, started when first asked for
        KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)

    @pytest.mark.kafka_settings({"num.partitions": 3})
    def test_crash(kafka_broker_fresh):                # a broker of this test's own
        kafka_broker_fresh.kill()
        kafka_broker_fresh.start()

    @pytest.mark.kafka_topic(partitions=3, settings={"cleanup.policy": "compact"})
    def test_tables(kafka_broker, kafka_topic):        # the name of a new topic, deleted after the test
        KafkaProducer(bootstrap_servers=kafka_broker.bootstrap).send(kafka_topic, key=b"k", value=b"v")

    @pytest.mark.kafka_security("SASL_SSL", users={"alice": "secret"})
    def test_login(kafka_broker_fresh):                # certificates and users are made for it
        Producer(kafka_broker_fresh.access("alice").librdkafka())

    def test_trouble(kafka_broker, kafka_topic):       # what a broker that is well never does
        with kafka_broker.faults.produce(topic=kafka_topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
            KafkaProducer(bootstrap_servers=kafka_broker.bootstrap).send(kafka_topic, b"v").get(10)
        assert fault.hits == 2
        (record,) = kafka_broker.topics[kafka_topic].records()

    @pytest.mark.kafka_brokers(4)
    def test_fail_over(kafka_cluster_fresh):           # a cluster of this test's own; `kafka_cluster`: of the whole run
        kafka_cluster_fresh.brokers[0].kill()

Both brokers are `barnabas.Broker`, both clusters `barnabas.Cluster`, of three brokers unless the configuration says
otherwise (`kafka_cluster_brokers`). `kafka_broker.reset()` deletes all topics and groups. `kafka_topic` makes its topic
on the broker or cluster that the test asks for, also without the marker; where tests share a broker it keeps them
apart. Settings for the brokers stand in pytest's configuration, as `kafka_broker_settings` with one KEY=VALUE per line;
the marker `kafka_settings` adds to them or overrides them for what is of one test; so does the marker `kafka_security`
with `kafka_broker_security`. Faults end with the test. When a test that uses a broker fails, the end of the broker's
log stands in the report. With pytest-xdist every worker has its own.

Nothing is imported or started before a test asks for a fixture.
"""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas import Broker, Cluster

SHARED, FRESH = "kafka_broker", "kafka_broker_fresh"
SHARED_CLUSTER, FRESH_CLUSTER = "kafka_cluster", "kafka_cluster_fresh"
EVERY = (FRESH, FRESH_CLUSTER, SHARED_CLUSTER, SHARED)
"""The first of those that a test asks for has its topic."""
SETTINGS_INI = "kafka_broker_settings"
SETTINGS_MARKER = "kafka_settings"
SECURITY_INI = "kafka_broker_security"
SECURITY_MARKER = "kafka_security"
BROKERS_INI = "kafka_cluster_brokers"
BROKERS_MARKER = "kafka_brokers"
TOPIC = TOPIC_MARKER = "kafka_topic"
NAME_CHARACTERS = 100
LOG_LINES = 50


def __tracebackhide__(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """pytest asks: a broker that does not start is reported without our code."""
    return excinfo.typename == "BrokerError"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(SETTINGS_INI, "settings of the Kafka brokers of the tests, one KEY=VALUE per line", "linelist", [])
    parser.addini(SECURITY_INI, "of the Kafka brokers of the tests: SSL, SASL_PLAINTEXT or SASL_SSL", "string", "")
    parser.addini(BROKERS_INI, "how many brokers the Kafka clusters of the tests have", "string", "3")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{SETTINGS_MARKER}(settings): of what is of this test alone, {FRESH} or {FRESH_CLUSTER}",
    )
    config.addinivalue_line(
        "markers", f"{SECURITY_MARKER}(protocol, users=None): SSL, SASL_PLAINTEXT or SASL_SSL, for those too"
    )
    config.addinivalue_line("markers", f"{BROKERS_MARKER}(number): how many brokers {FRESH_CLUSTER} has")
    config.addinivalue_line(
        "markers",
        f"{TOPIC_MARKER}(partitions=None, settings={{}}, replicas=None): of the topic of this test, for {TOPIC}; "
        "replicas on a cluster only",
    )


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A Kafka broker for the whole run (`.bootstrap` is its host:port)."""
    from barnabas import Broker

    with Broker(_configured(pytestconfig), security=pytestconfig.getini(SECURITY_INI) or None) as broker:
        yield broker


@pytest.fixture
def kafka_broker_fresh(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka broker of this test's own, which it may stop, kill and start again."""
    from barnabas import Broker

    settings, security = _own(request)
    with Broker(settings, **security) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A Kafka cluster for the whole run (`.bootstrap` is the host:port of all its brokers)."""
    from barnabas import Cluster

    security = pytestconfig.getini(SECURITY_INI) or None
    with Cluster(_brokers(pytestconfig), _configured(pytestconfig), security=security) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_fresh(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kafka cluster of this test's own, whose brokers it may stop, kill and start again."""
    from barnabas import Cluster

    settings, security = _own(request)
    marker = request.node.get_closest_marker(BROKERS_MARKER)
    number = _brokers(request.config) if marker is None else _number_of(marker)
    with Cluster(number, settings, **security) as cluster:
        yield cluster


def _own(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and security of one test."""
    settings = _configured(request.config)
    for marker in reversed(list(request.node.iter_markers(SETTINGS_MARKER))):  # the nearest one comes last and wins
        settings.update(_marked(marker))
    security = {"security": request.config.getini(SECURITY_INI) or None}
    marker = request.node.get_closest_marker(SECURITY_MARKER)
    return settings, security if marker is None else _security_of(marker)


def _brokers(config: pytest.Config) -> int:
    text = config.getini(BROKERS_INI)
    if re.fullmatch("[0-9]{1,3}", text) is None:
        raise pytest.UsageError(f"{BROKERS_INI}: {text!r} must be a number")
    return int(text)


def _number_of(marker: pytest.Mark) -> int:
    if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], int):
        raise pytest.UsageError(f"{BROKERS_MARKER} takes one number: {BROKERS_MARKER}(4)")
    return marker.args[0]


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic on the broker of this test. It is deleted after it, or goes with a broker of its own."""
    from barnabas import BrokerError

    asked = next((name for name in EVERY if name in request.fixturenames), SHARED)
    broker: Broker | Cluster = request.getfixturevalue(asked)
    # Named after the test, for who reads the broker's log; and different each time the test runs.
    words = re.sub("[^a-zA-Z0-9._-]+", "-", request.node.name)[:NAME_CHARACTERS]
    name = f"{words}-{uuid.uuid4().hex[:8]}"
    marker = request.node.get_closest_marker(TOPIC_MARKER)
    topic = {} if marker is None else _topic_of(marker)
    if "replicas" in topic and asked not in (SHARED_CLUSTER, FRESH_CLUSTER):
        raise pytest.UsageError(f"{TOPIC_MARKER} takes replicas for a cluster only")
    broker.create_topic(name, **topic)
    yield name
    # What only this test had ends now. It may be in no state to delete a topic, which would take a minute to fail.
    if asked in (SHARED, SHARED_CLUSTER) and broker.running:
        try:
            broker.delete_topic(name)
        except BrokerError as error:
            warnings.warn(f"{TOPIC}: {error}", stacklevel=1)


def _topic_of(marker: pytest.Mark) -> dict[str, Any]:
    if marker.args or not {"partitions", "settings", "replicas"}.issuperset(marker.kwargs):
        raise pytest.UsageError(
            f"{TOPIC_MARKER} takes partitions=NUMBER and settings=DICTIONARY, and replicas=NUMBER on a cluster"
        )
    return dict(marker.kwargs)


def _security_of(marker: pytest.Mark) -> dict[str, Any]:
    if len(marker.args) != 1 or not {"users"}.issuperset(marker.kwargs):
        raise pytest.UsageError(f'{SECURITY_MARKER} takes a protocol, and users: {SECURITY_MARKER}("SASL_SSL")')
    return {"security": marker.args[0], **marker.kwargs}


def _configured(config: pytest.Config) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for line in config.getini(SETTINGS_INI):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{SETTINGS_INI}: {line!r} must be written as KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _marked(marker: pytest.Mark) -> Mapping[str, Any]:
    if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], Mapping):
        raise pytest.UsageError(f'{SETTINGS_MARKER} takes one dictionary: {SETTINGS_MARKER}({{"num.partitions": 3}})')
    return marker.args[0]


def pytest_runtest_setup(item: pytest.Item) -> None:
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker(TOPIC_MARKER) is not None and TOPIC not in fixtures:
        raise pytest.UsageError(f"{TOPIC_MARKER} has no effect on a test without the fixture {TOPIC}")
    has_own = FRESH in fixtures or FRESH_CLUSTER in fixtures
    for shared, fresh in ((SHARED, FRESH), (SHARED_CLUSTER, FRESH_CLUSTER)):
        if shared in fixtures and not has_own and item.get_closest_marker(SETTINGS_MARKER) is not None:
            raise pytest.UsageError(f"{SETTINGS_MARKER} has no effect on {shared}, which all tests share: use {fresh}")
    if not has_own and item.get_closest_marker(SECURITY_MARKER) is not None:
        raise pytest.UsageError(f"{SECURITY_MARKER} has no effect without {FRESH} or {FRESH_CLUSTER}")
    if FRESH_CLUSTER not in fixtures and item.get_closest_marker(BROKERS_MARKER) is not None:
        raise pytest.UsageError(f"{BROKERS_MARKER} has no effect without {FRESH_CLUSTER}")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Faults end with the test that made them, also where the next one has the same broker."""
    for name in EVERY:
        found = getattr(item, "funcargs", {}).get(name)
        for broker in getattr(found, "brokers", [found]) if found is not None and found.running else []:
            faults = broker._faults  # None: nobody has asked for them
            if faults is not None and faults.in_use and broker.running:
                faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for name in EVERY:
            broker = getattr(item, "funcargs", {}).get(name)
            log = "" if broker is None else broker.log
            if log:
                report.sections.append((f"end of the log of {name}", "\n".join(log.splitlines()[-LOG_LINES:])))
    return report
