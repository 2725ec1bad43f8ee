"""KAFKA_* variables as settings."""

import pytest

from barnabas.server.config.environment import key_of, settings_from
from barnabas.server.settings import BROKER


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_BROKER_ID", "broker.id"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a-b"),
        ("KAFKA_A___B", "a_b"),
        ("KAFKA_A____B", "a_.b"),
        ("KAFKA_LISTENER_NAME_MY__NET_MAX_CONNECTIONS", "listener.name.my-net.max.connections"),
        ("KAFKA_CFG_NODE_ID", "node.id"),
    ],
)
def test_names(variable: str, key: str) -> None:
    assert key_of(variable) == key


@pytest.mark.parametrize("name", [name for name in BROKER if "-" not in name and "_" not in name])
def test_every_setting_can_be_given(name: str) -> None:
    variable = "KAFKA_" + name.replace(".", "_").upper()
    assert settings_from({variable: "x"}, BROKER) == [(name, "x", variable)]


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_SERVICE_HOST",
        "KAFKA_CREATE_TOPICS",
        "KAFKA_CREATE_TOPICS_SEPARATOR",
        "CLUSTER_ID",
        "OTHER_NUM_PARTITIONS",
        "kafka_num_partitions",
    ],
)
def test_not_settings(variable: str) -> None:
    assert settings_from({variable: "x"}, BROKER) == []
