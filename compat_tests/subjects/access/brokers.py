"""Brokers for the table: an authorizer, a listener where everybody is a super user, and one for SASL/PLAIN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests.clusters.nodes import KafkaNode
from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.ports import free_ports
from compat_tests.harness.zookeeper import zookeeper
from compat_tests.subjects.access.world import SUPER, USERS, Address

_USERS = " ".join(f'user_{user}="{user}"' for user in (SUPER, *USERS))
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "delegation.token.secret.key": "what tokens are made with",
    "super.users": f"User:ANONYMOUS;User:{SUPER}",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "600000",
    **{
        f"group.{kind}.{which}session.timeout.ms": "600000"
        for kind in ("consumer", "share", "streams")
        for which in ("max.", "")
    },
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "auto.create.topics.enable": "true",
    "connections.max.idle.ms": "7200000",
}
"""Of both: what outcomes depend on. Members and connections stay, and a streams group assigns nothing, however long all
takes.
"""
OPEN = {"allow.everyone.if.no.acl.found": "true"}
"""Of the second, smaller pass."""


def apache_kafka(directory: Path, *, is_open: bool = False) -> tuple[Broker, Address]:
    """Apache Kafka 4.3.1, one KRaft node."""
    plain, login, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}"
    settings = {**SETTINGS, **(OPEN if is_open else {})}
    broker = start_kafka(
        directory,
        [
            *(f"{key}={value}" for key, value in settings.items()),
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={listeners}",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        ],
        wait=False,
    )
    broker.bootstrap = f"127.0.0.1:{plain}"
    wait_until_open(broker)
    return broker, Address(("127.0.0.1", plain), ("127.0.0.1", login))


@contextmanager
def apache_kafka_3(directory: Path) -> Iterator[Address]:
    """Apache Kafka 3.9.1 with ZooKeeper and its own authorizer for that."""
    plain, login = free_ports(2)
    with zookeeper(directory / "zookeeper") as zk:
        settings = {
            **SETTINGS,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "zookeeper.connect": zk.connect,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        node = KafkaNode(1, directory / "broker", ("127.0.0.1", plain), settings)
        node.start()
        try:
            node.wait_open()
            yield Address(("127.0.0.1", plain), ("127.0.0.1", login))
        finally:
            node.stop()


def barnabas(directory: Path, *, is_open: bool = False) -> tuple[Broker, Address]:
    """Ours."""
    plain, login = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}"
    settings = {**SETTINGS, **(OPEN if is_open else {}), "listeners": listeners, "log.dirs": str(directory / "data")}
    broker = start_barnabas(directory, [f"{key}={value}" for key, value in settings.items()])
    return broker, Address(("127.0.0.1", plain), ("127.0.0.1", login))
