"""DescribeConfigs of settings that come from everywhere: values, sources, synonyms in their order, over every name that
both brokers know. Apache Kafka 4.3.1 answers what is stored, ours the same but for what stands here.

`python -m compat_tests.subjects.answers` asks Apache Kafka again and stores it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ListConfigResourcesResponse
from compat_tests.harness.brokers import Broker
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.access.connection import Connection, request
from compat_tests.subjects.answers.settings_table import Rows, describe, start, stored

pytestmark = pytest.mark.slow

_ONE_NODE = "One broker's default, where Apache Kafka wants three."
_STARTS_ONLY = "Here it counts when the broker starts, and says so."
_OVERRULED = "The value that is set; Apache Kafka shows the default while log.retention.ms overrules it."
_THE_FUTURE = "Timestamps may lie in the future as with 3.9; 4.0 allows an hour."
DIFFERENCES = {
    "broker config.providers": _STARTS_ONLY,
    "broker log.message.timestamp.after.max.ms": _THE_FUTURE,
    "broker log.retention.hours": _OVERRULED,
    "broker log.retention.minutes": _OVERRULED,
    "broker offsets.topic.replication.factor": _ONE_NODE,
    "broker sasl.jaas.config": _STARTS_ONLY,
    "broker sasl.mechanism.inter.broker.protocol": _STARTS_ONLY,
    "broker sasl.oauthbearer.expected.audience": "What is not set has no value.",
    "broker transaction.state.log.min.isr": _ONE_NODE,
    "broker transaction.state.log.replication.factor": _ONE_NODE,
    "topic message.timestamp.after.max.ms": _THE_FUTURE,
    "topic min.insync.replicas": "Apache Kafka sets it for all brokers by itself (eligible leader replicas).",
}
"""Where ours answers otherwise, and why: all of it."""
ONLY_OURS = {
    "topic message.downconversion.enable",
    "topic message.format.version",
    "topic message.timestamp.difference.max.ms",
}
"""Settings of topics that 4.0 has dropped and clients older than 0.11, or 3.9's tools, know."""


def asked(broker: Broker) -> Rows:
    """What it answers; it is ended."""
    try:
        with closing(Connection(broker.address)) as connection:
            return describe(connection, "t", 1)
    finally:
        broker.stop()


@pytest.mark.campaign
@pytest.mark.jvm
def test_apache_kafka_answers_what_is_stored(tmp_path: Path) -> None:
    found, known = asked(start(tmp_path, is_kafka=True)), stored()
    assert {name: row for name, row in found.items() if known.get(name) != row} == {}
    assert found.keys() == known.keys()


def test_our_broker_answers_the_same(tmp_path: Path) -> None:
    found, known = asked(start(tmp_path, is_kafka=False)), stored()
    different = {name for name in found.keys() & known.keys() if found[name] != known[name]}
    assert different == DIFFERENCES.keys()
    of_topics = {name for name in found if name.startswith("topic ")}
    assert of_topics - known.keys() == ONLY_OURS
    assert {name for name in known if name.startswith("topic ")} <= of_topics


BROKER, LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
UNSUPPORTED_VERSION = 35


def test_which_resources_have_settings(broker: Broker) -> None:
    """ListConfigResources: names that something is stored of, and brokers whatever is stored of them."""
    with closing(Connection(broker.address)) as connection:

        def listed(version: int, *kinds: int) -> ListConfigResourcesResponse:
            asked = request(ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": list(kinds)})
            answer = connection.ask(asked, version)
            assert isinstance(answer, ListConfigResourcesResponse)
            return answer

        def names(version: int, *kinds: int) -> set[tuple[int, str]]:
            answer = listed(version, *kinds)
            assert answer.error_code == 0
            return {(each.resource_type, each.resource_name) for each in answer.config_resources}

        def alter(kind: int, name: str, key: str, value: str | None) -> None:
            configs = [{"name": key, "config_operation": 1 if value is None else 0, "value": value}]
            resource = {"resource_type": kind, "resource_name": name, "configs": configs}
            answer = connection.ask(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}), 1)
            assert [each.error_code for each in answer.responses] == [0]

        mine = {(CLIENT_METRICS, "answers"), (GROUP, "answers")}
        settings = ((CLIENT_METRICS, "metrics", "x"), (GROUP, "consumer.session.timeout.ms", "50000"))
        for kind, key, value in settings:
            alter(kind, "answers", key, value)
        wait_until(lambda: names(1) >= mine, "the resources")
        everything = names(1)
        assert names(0) == {one for one in everything if one[0] == CLIENT_METRICS}
        assert {name for kind, name in everything if kind == BROKER} == {
            name for kind, name in everything if kind == LOGGER
        }
        for kind in (BROKER, LOGGER, CLIENT_METRICS, GROUP):
            assert names(1, kind) == {one for one in everything if one[0] == kind}
        assert names(1, GROUP, CLIENT_METRICS, GROUP) >= mine
        for wrong in (0, 1, 3, 64, -1):
            answer = listed(1, CLIENT_METRICS, wrong)
            assert (answer.error_code, answer.config_resources) == (UNSUPPORTED_VERSION, [])
        for kind, key, _ in settings:
            alter(kind, "answers", key, None)
        wait_until(lambda: not names(1) & mine, "no resources")
