"""kafka-client-metrics and kafka-configs on subscriptions to clients' metrics (KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@case("KIP-714: kafka-client-metrics creates, lists, describes, alters, deletes subscriptions")
def test_subscriptions(tools: Tools, unique: Names) -> None:
    name = unique("metrics")
    of = ("kafka-client-metrics", "--name", name)
    tools(*of, "--alter", "--metrics", "org.apache.kafka.consumer.,org.apache.kafka.producer.", "--interval", "30000")
    assert name in tools("kafka-client-metrics", "--list").split()
    text = tools(*of, "--describe")
    assert "interval.ms=30000" in text
    assert "metrics=org.apache.kafka.consumer.,org.apache.kafka.producer." in text
    tools(*of, "--alter", "--match", "client_id=app-.*,client_software_name=apache-kafka-java", "--interval", "")
    text = tools(*of, "--describe")
    assert "interval.ms=300000" in text or "interval.ms" not in text
    assert re.search(r"match=.*client_software_name=apache-kafka-java", text), text
    assert name in tools("kafka-client-metrics", "--describe")
    refused = tools(*of, "--alter", "--interval", "99", expect=None)
    assert "InvalidRequestException" in refused
    refused = tools(*of, "--alter", "--match", "client=x", expect=None)
    assert "InvalidConfigurationException" in refused
    tools(*of, "--delete")
    assert name not in tools("kafka-client-metrics", "--list").split()


@case("KIP-714: kafka-configs --entity-type client-metrics")
def test_settings(tools: Tools, unique: Names) -> None:
    name = unique("metrics")
    of = ("kafka-configs", "--entity-type", "client-metrics", "--entity-name", name)
    tools(*of, "--alter", "--add-config", "interval.ms=1000,metrics=[org.apache.kafka.admin.client.]")
    assert "interval.ms=1000" in tools(*of, "--describe")
    assert "metrics=org.apache.kafka.admin.client." in tools(*of, "--describe")
    tools(*of, "--alter", "--delete-config", "interval.ms")
    assert "interval.ms=1000" not in tools(*of, "--describe")
    assert name in tools("kafka-client-metrics", "--list").split()
    tools(*of, "--alter", "--delete-config", "metrics")
    assert name not in tools("kafka-client-metrics", "--list").split()
