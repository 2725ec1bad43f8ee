"""The pytest plugin, in pytest runs of its own (in processes: as a user has it)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project. The plugin is there by its entry point if Barnabas is installed, and by name if not."""
    from importlib.metadata import entry_points

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    if not any(point.name == "barnabas" for point in entry_points(group="pytest11")):
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p barnabas.pytest_plugin")
    return pytester


def patient(text: str) -> str:
    """Code of a page, which waits ten seconds at most, for a machine that has others to do."""
    return re.sub(r"\b(get|flush)\(10\)", r"\1(60)", text)


CLIENTS = """
    from kafka import KafkaConsumer, KafkaProducer
    from confluent_kafka import Consumer, Producer

    def test_kafka_python(kafka_broker):
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
        assert producer.send("one", b"hello").get(60).offset == 0
        producer.close()
        consumer = KafkaConsumer("one", bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest")
        assert next(consumer).value == b"hello"
        consumer.close()

    def test_confluent(kafka_broker):
        told = []
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
        producer.produce("two", b"hello", on_delivery=lambda error, message: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None]
        consumer = Consumer({
            "bootstrap.servers": kafka_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"
        })
        consumer.subscribe(["two"])
        message = consumer.poll(60)
        assert (message.error(), message.value()) == (None, b"hello")
        consumer.close()

    def test_it_is_one_broker(kafka_broker):
        assert (kafka_broker.data / "one-0").is_dir()
        assert (kafka_broker.data / "two-0").is_dir()
"""


def test_stock_clients_on_the_shared_broker(suite: pytest.Pytester) -> None:
    suite.makepyfile(CLIENTS)
    suite.runpytest_subprocess().assert_outcomes(passed=3)


def test_a_fresh_broker_and_its_settings(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nkafka_broker_settings =\n    num.partitions = 2\n    broker.rack=r1\n")
    suite.makepyfile(
        """
        import pytest
        from kafka import KafkaProducer

        def partitions(broker):
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
            try:
                producer.send("t", b"x").get(60)
                return len(producer.partitions_for("t"))
            finally:
                producer.close()

        pytestmark = pytest.mark.kafka_settings({"num.partitions": 3, "broker.rack": "r2"})

        @pytest.mark.kafka_settings({"num.partitions": 4})
        def test_marked(kafka_broker_fresh):
            assert partitions(kafka_broker_fresh) == 4
            kafka_broker_fresh.kill()
            kafka_broker_fresh.start()
            assert (kafka_broker_fresh.data / "t-3").is_dir()
            assert partitions(kafka_broker_fresh) == 4

        def test_marked_above(kafka_broker_fresh):
            assert partitions(kafka_broker_fresh) == 3
        """
    )
    suite.makepyfile(
        test_shared="""
        from test_a_fresh_broker_and_its_settings import partitions

        def test_shared(kafka_broker):
            assert partitions(kafka_broker) == 2
        """
    )
    suite.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)


def test_mistakes_are_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.kafka_settings({"num.partitions": 4})
        def test_no_effect(kafka_broker): pass

        @pytest.mark.kafka_settings(num_partitions=4)
        def test_no_dictionary(kafka_broker_fresh): pass

        @pytest.mark.kafka_settings({"num.partitions": 0})
        def test_refused(kafka_broker_fresh): pass
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        [
            "*kafka_settings has no effect on kafka_broker, which all tests share: use kafka_broker_fresh",
            "*kafka_settings takes one dictionary: *",
            "*barnabas: num.partitions=0 is refused: it must be at least 1*",
        ]
    )
    suite.makeini("[pytest]\nkafka_broker_settings = num.partitions\n")
    suite.makepyfile("def test_ini(kafka_broker): pass")
    suite.runpytest_subprocess().stdout.fnmatch_lines(["*'num.partitions' must be written as KEY=VALUE"])


def test_a_broker_that_fails_is_reported_without_our_code(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import barnabas, pytest

        def test_refused():
            with barnabas.Broker({"num.partitions": 0}):
                pass

        @pytest.mark.kafka_settings({"num.partitions": 0})
        def test_refused_in_the_fixture(kafka_broker_fresh): pass

        def test_gone():
            with barnabas.Broker() as broker:
                broker.kill()
                broker.pid
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=2, errors=1)
    report = result.stdout.str()
    assert report.count("num.partitions=0 is refused: it must be at least 1") >= 2
    assert "E       barnabas.BrokerError: the broker refuses its settings; the end of its log:" in report
    assert "E           barnabas.BrokerError: the broker is not running" in report
    assert ">           with barnabas.Broker" in report or ">       with barnabas.Broker" in report
    assert "process.py" not in report
    assert "def kafka_broker_fresh" not in report
    assert "_start" not in report


def test_a_failure_shows_the_brokers_log(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest, socket

        @pytest.mark.kafka_settings({"socket.request.max.bytes": 1000})
        def test_fails(kafka_broker_fresh):
            host, port = kafka_broker_fresh.bootstrap.split(":")
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(b"GET / HTTP/1.1")
                assert sock.recv(1) == b"?"

        def test_passes(kafka_broker): pass
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*- end of the log of kafka_broker_fresh -*", "*HTTP request on listener*"])
    assert "log of kafka_broker -" not in result.stdout.str()


def test_it_costs_nothing_when_unused(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_nothing():
            assert "barnabas.pytest_plugin" in sys.modules
            loaded = {name for name in sys.modules if name.startswith("barnabas.")}
            assert loaded == {"barnabas.pytest_plugin"}
        """
    )
    suite.runpytest_subprocess("-p", "no:trio").assert_outcomes(passed=1)
    suite.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.kafka_settings(settings): *"])
    listed = suite.runpytest_subprocess("--fixtures")
    for name in ("kafka_broker [[]session*", "kafka_broker_fresh*"):  # in the order of the text of their lines' numbers
        listed.stdout.fnmatch_lines([name])


def test_topics_of_their_own_on_a_shared_broker(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from kafka import KafkaAdminClient, KafkaProducer
        from kafka.admin import ConfigResource

        names = []

        def partitions_and_policy(broker, topic):
            admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
            (described,) = admin.describe_topics([topic])
            configs = admin.describe_configs([ConfigResource("TOPIC", topic)])
            admin.close()
            return len(described["partitions"]), "compact" in str(configs)

        @pytest.mark.parametrize("time", [1, 2, "a b/c"])
        def test_first_record(kafka_broker, kafka_topic, time):
            names.append(kafka_topic)
            producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
            assert producer.send(kafka_topic, b"hello").get(60).offset == 0
            producer.close()

        def test_they_are_gone(kafka_broker):
            assert len(set(names)) == 3
            assert names[2].startswith("test_first_record-a-b-c-")
            admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
            assert not set(admin.list_topics()) & set(names)
            admin.close()

        @pytest.mark.kafka_topic(partitions=3, settings={"cleanup.policy": "compact"})
        def test_settings(kafka_broker_fresh, kafka_topic):
            assert partitions_and_policy(kafka_broker_fresh, kafka_topic) == (3, True)
            kafka_broker_fresh.stop()

        @pytest.mark.kafka_topic(5)
        def test_wrong_marker(kafka_topic): pass

        @pytest.mark.kafka_topic(partitions=5)
        def test_marker_without_effect(kafka_broker): pass
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*kafka_topic takes partitions=NUMBER and settings=DICTIONARY*"])
    result.stdout.fnmatch_lines(["*kafka_topic has no effect on a test without the fixture kafka_topic*"])


def test_a_refused_reset_is_reported_without_our_code(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import barnabas

        def test_not_there():
            with barnabas.Broker() as broker:
                broker.kill()
                broker.reset()
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * barnabas.BrokerError: no connection to *"])
    result.stdout.no_fnmatch_line("*barnabas/process.py:*")
