"""Listeners that are added to brokers of a cluster and removed again by kafka-configs, while a client goes on over
another one: with TLS alone, and with TLS and SCRAM. One broker is ours, one Apache Kafka 3.9.1, so that each sees what
the other advertises; with `--peer kafka` both are Apache Kafka.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from barnabas.kproto import ApiKey, ErrorCode
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA, KAFKA_ZK_JARS, OURS, Node
from compat_tests.harness.ports import free_ports
from compat_tests.harness.secured import PASSWORD, USER, Access, Stores, java_settings
from compat_tests.subjects.access.connection import Connection, request

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(600)]

HOST = "127.0.0.1"
MAP = "PLAINTEXT:PLAINTEXT,TLS:SSL,SAFE:SASL_SSL"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SETTINGS = {
    # Of a listener that is added later; a password, so it cannot be set while the broker runs.
    "listener.name.safe.scram-sha-512.sasl.jaas.config": SCRAM,
    # Who stands still for a while stays registered, and the controller.
    "zookeeper.session.timeout.ms": "60000",
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
WITHIN_S = 120
RECORDS = 50


class Two(Cluster):
    """The cluster, certificates, and ports for the listeners of its brokers."""

    def __init__(self, directory: Path, kinds: list[str]) -> None:
        super().__init__(directory, kinds, settings=SETTINGS)
        self.stores = Stores(directory / "certificates")
        self.identity = self.stores.broker("broker")
        self.ports = {number: dict(zip(("TLS", "SAFE"), free_ports(2), strict=True)) for number in (1, 2)}

    def access(self, listener: str) -> Access:
        """To both brokers."""
        bootstrap = ",".join(f"{HOST}:{ports[listener]}" for ports in self.ports.values())
        mechanism = "SCRAM-SHA-512" if listener == "SAFE" else ""
        return Access(bootstrap, self.stores.authority, mechanism=mechanism)

    def listeners(self, node: Node) -> str:
        """All three of a broker."""
        added = [f"{name}://{HOST}:{port}" for name, port in self.ports[node.number].items()]
        return ",".join([node.settings["listeners"], *added])

    def endpoints(self, node: Node) -> list[str]:
        """As they are registered; none while it is not."""
        return list((self.tree.json(f"/brokers/ids/{node.number}") or {"endpoints": []})["endpoints"])

    def make_user(self) -> None:
        """The user that logs in at SAFE."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        self.ask(lambda admin: admin.alter_user_scram_credentials([wanted]))


@pytest.fixture(scope="module")
def two(kinds: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """A running cluster: broker 1 is ours, broker 2 is Apache Kafka."""
    brokers = [KAFKA, KAFKA] if kinds[0] == KAFKA else [OURS, KAFKA]
    with Two(tmp_path_factory.mktemp("listeners"), brokers) as cluster:
        cluster.make_user()
        yield cluster


class Configs:
    """kafka-configs 3.9.1, for the settings of the broker that it connects to."""

    def __init__(self, jvms: WarmJvms) -> None:
        self._jvms = jvms

    def alter(self, node: Node, settings: Mapping[str, str | None]) -> None:
        """Set settings, or delete those that are None."""
        added = [f"{key}={text}" for key, text in settings.items() if text is not None]
        deleted = [key for key, text in settings.items() if text is None]
        for option, words in (("--add-config", added), ("--delete-config", deleted)):
            if words:
                self._tools(node.bootstrap)("kafka-configs", *_about(node), "--alter", option, ",".join(words))

    def forget(self, node: Node, settings: Iterable[str]) -> list[str]:
        """Delete settings of listeners that are gone. Returns those that stay: Apache Kafka keeps hold of their key
        stores until it is started again.
        """
        kept = [key for key in settings if node.kind == KAFKA and ".keystore." in key]
        self.alter(node, dict.fromkeys(key for key in settings if key not in kept))
        return kept

    def describe(self, node: Node, bootstrap: str = "", *words: str) -> str:
        """What is set on the broker while it runs."""
        done = self._tools(bootstrap or node.bootstrap).process("kafka-configs", *_about(node), "--describe", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def _tools(self, bootstrap: str) -> Tools:
        return Tools(bootstrap, self._jvms, KAFKA_ZK_JARS)


def _about(node: Node) -> tuple[str, ...]:
    return "--entity-type", "brokers", "--entity-name", str(node.number)


@pytest.fixture
def configs(warm_jvms: WarmJvms) -> Configs:
    return Configs(warm_jvms)


def client(access: Access, **settings: Any) -> dict[str, Any]:
    """librdkafka's settings."""
    made = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol.lower(), "log_level": 2}
    if access.authority is not None:
        made["ssl.ca.location"] = str(access.authority)
    if access.mechanism:
        made |= {"sasl.mechanism": access.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return {**made, **{key.replace("_", "."): value for key, value in settings.items()}}


def values(bootstrap: Access, topic: str, count: int) -> list[bytes]:
    """The first `count` values of a topic of two partitions, or fewer when no more come; sorted."""
    found: list[bytes] = []
    with closing(Consumer(client(bootstrap, group_id="none", enable_auto_commit=False))) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in (0, 1)])
        deadline = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() or b"" for message in consumer.consume(count, 0.5) if message.error() is None]
    return sorted(found)


@contextmanager
def going_on(two: Two, topic: str) -> Iterator[list[object]]:
    """Write to both brokers over PLAINTEXT meanwhile, then read it all. The list has the errors."""
    failed: list[object] = []
    ends = threading.Event()
    sent = [0]
    plain = Access(two.bootstrap)

    def write() -> None:
        # What a broker that stands still does not answer in time would be told as an error.
        waits = ("socket.timeout.ms", "socket.connection.setup.timeout.ms", "api.version.request.timeout.ms")
        patient = {**client(plain, enable_idempotence=True, linger_ms=0), **dict.fromkeys(waits, WITHIN_S * 1000)}
        producer = Producer({**patient, "error_cb": failed.append})
        while not ends.is_set():
            producer.produce(
                topic,
                b"%06d" % sent[0],
                partition=sent[0] % 2,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            sent[0] += 1
            producer.poll(0.01)
        assert producer.flush(WITHIN_S) == 0

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield failed
    finally:
        ends.set()
        writer.join()
    assert failed == []
    assert sent[0] > 100
    assert values(plain, topic, sent[0]) == [b"%06d" % number for number in range(sent[0])]


def there_and_back(two: Two, listener: str) -> None:
    """Records go to both brokers and come back over this listener, and its metadata names no other addresses."""
    access, topic = two.access(listener), f"over-{listener.lower()}"
    two.create_topic(topic, replicas=[[1], [2]])
    found = AdminClient(client(access)).list_topics(timeout=WITHIN_S).brokers
    assert {f"{each.host}:{each.port}" for each in found.values()} == set(access.bootstrap.split(","))
    failed: list[object] = []
    producer = Producer(client(access, enable_idempotence=True))
    for number in range(RECORDS):
        producer.produce(
            topic,
            b"%04d" % number,
            partition=number % 2,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WITHIN_S) == 0
    assert failed == []
    assert values(access, topic, RECORDS) == [b"%04d" % number for number in range(RECORDS)]


def test_listeners_are_added_used_and_removed(two: Two, configs: Configs, tmp_path: Path) -> None:
    two.create_topic("plain", replicas=[[1, 2], [2, 1]])
    nodes = list(two.nodes.values())
    before = {node.number: two.endpoints(node) for node in nodes}
    added: dict[str, str | None] = {
        "listener.security.protocol.map": f"[{MAP}]",
        "listener.name.tls.ssl.keystore.location": str(two.identity),
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.safe.ssl.keystore.location": str(two.identity),
        "listener.name.safe.ssl.keystore.type": "PEM",
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with going_on(two, "plain"):
        for node in nodes:
            configs.alter(node, {"listeners": f"[{two.listeners(node)}]", **added})
        for node in nodes:
            wanted = two.listeners(node).split(",")
            two.wait(lambda node=node, wanted=wanted: two.endpoints(node) == wanted, f"{node} is registered", WITHIN_S)
            registration = two.tree.json(f"/brokers/ids/{node.number}")
            assert registration["listener_security_protocol_map"] == dict(pair.split(":") for pair in MAP.split(","))
            assert (registration["host"], registration["port"]) == node.address
        for listener in ("TLS", "SAFE"):
            access = two.access(listener)
            two.wait(lambda access=access: _brokers(access) == 2, f"both are known over {listener}", WITHIN_S)
            there_and_back(two, listener)
        two.wait(lambda: _brokers(Access(two.bootstrap)) == 2, "both are known as before", WITHIN_S)
        login = tmp_path / "login.properties"
        login.write_text("".join(f"{key}={text}\n" for key, text in java_settings(two.access("SAFE"))))
        for node in nodes:
            safe = f"{HOST}:{two.ports[node.number]['SAFE']}"
            described = configs.describe(node, safe, "--command-config", str(login))
            assert f"listeners={two.listeners(node)} sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:" in described
            assert "listener.name.safe.sasl.enabled.mechanisms=SCRAM-SHA-512" in described
        connected = [_connected(two, two.ports[node.number]["TLS"]) for node in nodes]
        for node in nodes:
            configs.alter(node, {"listeners": None})
        for node in nodes:
            two.wait(lambda node=node: two.endpoints(node) == before[node.number], f"{node} is as before", WITHIN_S)
            for port in two.ports[node.number].values():
                two.wait(lambda port=port: not _opens(port), f"{port} is closed", WITHIN_S)
        for node in nodes:
            kept = configs.forget(node, added)
            two.wait(
                lambda node=node, kept=kept: configs.describe(node).count("DYNAMIC_BROKER_CONFIG:") == len(kept),
                f"{node} has no such settings any more",
                WITHIN_S,
                pause=1,
            )
        for connection in connected:
            with closing(connection):
                assert _has_ended(connection)
    assert {node.number: two.endpoints(node) for node in nodes} == before


def _brokers(access: Access) -> int:
    """How many brokers each of them knows."""
    ones = [replace(access, bootstrap=one) for one in access.bootstrap.split(",")]
    return min(len(AdminClient(client(one)).list_topics(timeout=30).brokers) for one in ones)


def _connected(two: Two, port: int) -> ssl.SSLSocket:
    """Through TLS, and silent."""
    context = ssl.create_default_context(cafile=str(two.stores.authority))
    return context.wrap_socket(socket.create_connection((HOST, port), timeout=WITHIN_S), server_hostname=HOST)


def _has_ended(connection: ssl.SSLSocket) -> bool:
    try:
        return connection.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def _opens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_listeners_outlive_a_restart(two: Two, configs: Configs) -> None:
    """Settings of a running broker win over its file. After the restart the other broker is the controller."""
    node = two.nodes[1]
    key = "listener.name.tls.ssl.keystore"
    wanted = f"{node.settings['listeners']},TLS://{HOST}:{two.ports[1]['TLS']}"
    settings: dict[str, str | None] = {
        "listeners": f"[{wanted}]",
        "listener.security.protocol.map": f"[{MAP}]",
        f"{key}.location": str(two.identity),
        f"{key}.type": "PEM",
    }
    configs.alter(node, settings)
    two.wait(lambda: two.endpoints(node) == wanted.split(","), "it is registered", WITHIN_S)
    node.stop()
    two.wait(lambda: two.tree.controller() == 2, "the other broker is the controller", WITHIN_S)
    two.start_node(1)
    two.wait_registered()
    assert two.endpoints(node) == wanted.split(",")
    with closing(_connected(two, two.ports[1]["TLS"])) as connection:
        assert connection.version() == "TLSv1.3"
    assert two.tree.json("/controller")["brokerid"] == 2
    advertised = wanted.replace(f"PLAINTEXT://{HOST}", "PLAINTEXT://localhost")
    configs.alter(node, {"advertised.listeners": f"[{advertised}]"})
    two.wait(lambda: two.endpoints(node) == advertised.split(","), "other addresses are registered", WITHIN_S)
    other = Access(two.nodes[2].bootstrap)
    two.wait(lambda: _hosts(other).get(1) == "localhost", "the other broker has the new address", WITHIN_S)
    configs.alter(node, {"listeners": None, "advertised.listeners": None})
    two.wait(lambda: two.endpoints(node) == [node.settings["listeners"]], "it is registered as before", WITHIN_S)
    two.wait(lambda: _hosts(other).get(1) == HOST, "the other broker has the old address", WITHIN_S)
    configs.forget(node, [key for key in settings if key != "listeners"])


def _hosts(access: Access) -> dict[int, str]:
    return {number: each.host for number, each in AdminClient(client(access)).list_topics(timeout=30).brokers.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "TLS://{host}"},
        {"listeners": ""},
        {"listeners": "nonsense"},
        {"listeners": "{base},OTHER://{host}"},
        {"listeners": "{base},TLS://{host},SSL://{host}", "listener.security.protocol.map": f"{MAP},SSL:SSL"},
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        {"listener.security.protocol.map": "TLS:SSL"},
        {"advertised.listeners": "OTHER://{host}"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
        {"inter.broker.listener.name": "TLS"},
        {"control.plane.listener.name": "TLS"},
        {"connections.max.reauth.ms": "1000"},
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [1, 2])
def test_invalid_changes_are_refused(two: Two, number: int, settings: dict[str, str]) -> None:
    """By both alike, before anything changes."""
    node = two.nodes[number]
    before = two.endpoints(node)
    texts = {
        key: text.format(host=f"{HOST}:{two.ports[number]['TLS']}", base=node.settings["listeners"])
        for key, text in settings.items()
    }
    assert _altered(node, str(number), texts) == ErrorCode.INVALID_REQUEST
    assert two.endpoints(node) == before


@pytest.mark.parametrize("number", [1, 2])
def test_listeners_cannot_be_set_for_all_brokers(two: Two, number: int) -> None:
    node = two.nodes[number]
    for settings in ({"listeners": node.settings["listeners"]}, {"listener.name.tls.ssl.keystore.type": "PEM"}):
        assert _altered(node, "", settings) == ErrorCode.INVALID_REQUEST


def _altered(node: Node, name: str, settings: Mapping[str, str]) -> ErrorCode:
    configs = [{"name": key, "config_operation": 0, "value": text} for key, text in settings.items()]
    resource = {"resource_type": 4, "resource_name": name, "configs": configs}
    with closing(Connection(node.address)) as connection:
        values = {"resources": [resource], "validate_only": False}
        answer = connection.ask(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values), 1)
    return ErrorCode(answer.responses[0].error_code)
