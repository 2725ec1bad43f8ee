"""Three brokers that speak SASL_SSL with each other and with clients, and TLS with a log-in to ZooKeeper: nothing on
the network is in clear text, and nobody is anonymous. Access lists, users and quotas that are changed at one broker
count at all three, and records survive a broker.

The brokers are ours; with `--peer kafka` they are Apache Kafka 3.9.1.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kazoo.exceptions import NoAuthError
from kazoo.security import Permissions

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA, OURS, KafkaNode, Node
from compat_tests.harness.ports import free_ports
from compat_tests.harness.secured import STORE_PASSWORD, Stores
from compat_tests.harness.zookeeper import start_zookeeper
from compat_tests.subjects.access.connection import Connection, Values, request

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(600)]

HOST = "127.0.0.1"
MODULES = "org.apache.kafka.common.security"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
ZOOKEEPER_USER, ZOOKEEPER_PASSWORD = "brokers", "brokers-secret"
PASSWORD = "user-secret"
FILTERED = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
RECORDS = 300
WITHIN_S = 120
REFUSED_S = 3
"""Who has not been let in by then, is not; who is let in may wait for longer."""
SETTINGS = {
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required"
    f' username="{ADMIN}" password="{ADMIN_PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}";',
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{ADMIN}",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "zookeeper.set.acl": "true",
    "zookeeper.ssl.client.enable": "true",
    # ZooKeeper 3.9 speaks TLS 1.3 alone where Java has it; Apache Kafka's default is 1.2 alone.
    "zookeeper.ssl.protocol": "TLSv1.3",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
}


class Safe(Cluster):
    """The cluster; whoever asks it something is `admin`, unless said otherwise."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.stores = Stores(directory / "certificates")
        (self._secure_port,) = free_ports(1)
        self._identity = self.stores.broker("broker")
        settings = {
            **SETTINGS,
            "ssl.keystore.location": str(self._identity),
            "ssl.truststore.location": str(self.stores.authority),
            "zookeeper.connect": f"{HOST}:{self._secure_port}",
        }
        for store, path in (("keystore", self._identity), ("truststore", self.stores.authority)):
            settings[f"zookeeper.ssl.{store}.location"] = str(path.with_suffix(".p12"))
            settings[f"zookeeper.ssl.{store}.type"] = "PKCS12"
            settings[f"zookeeper.ssl.{store}.password"] = STORE_PASSWORD
        self._login = directory / "client.jaas"
        if kind == OURS:
            settings["java.security.auth.login.config"] = str(self._login)
        super().__init__(directory, [kind] * 3, settings=settings)

    def start_zookeeper(self) -> None:
        """With TLS, and certificates of clients, on one port; in clear text, for the tests alone, on another."""
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        server = self.directory / "server.jaas"
        server.write_text(f'Server {{ {module} user_{ZOOKEEPER_USER}="{ZOOKEEPER_PASSWORD}"; }};\n')
        self._login.write_text(f'Client {{ {module} username="{ZOOKEEPER_USER}" password="{ZOOKEEPER_PASSWORD}"; }};\n')
        self.zookeeper = start_zookeeper(
            self.directory / "zookeeper",
            config={
                "secureClientPort": str(self._secure_port),
                "secureClientPortAddress": HOST,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "ssl.keyStore.location": str(self.stores.broker("zookeeper")),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(self.stores.authority),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need",
            },
            java_options=[f"-Djava.security.auth.login.config={server}"],
        )

    def add_node(self, number: int, kind: str, port: int = 0, **settings: str) -> Node:
        """On a listener of SASL_SSL alone."""
        node = super().add_node(number, kind, port, **settings, listeners=f"SASL_SSL://{HOST}:{port}")
        if isinstance(node, KafkaNode):
            node.options = (*node.options, f"-Djava.security.auth.login.config={self._login}")
        return node

    def client(self, bootstrap: str = "", user: str = ADMIN, **settings: Any) -> dict[str, Any]:
        """librdkafka's settings. bootstrap: all brokers, if it is empty."""
        mechanism, password = ("PLAIN", ADMIN_PASSWORD) if user == ADMIN else ("SCRAM-SHA-512", PASSWORD)
        return {
            "bootstrap.servers": bootstrap or self.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.stores.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 2,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def admin_of(self, bootstrap: str, **settings: Any) -> AdminClient:  # type: ignore[override]
        """As the administrator."""
        return super().admin_of(bootstrap, **self.client(bootstrap), **settings)

    def lets_in(self, node: Node, user: str, within_s: float = 30) -> bool:
        """Whether a broker lets a user log in."""
        try:
            AdminClient(self.client(node.bootstrap, user)).list_topics(timeout=within_s)
        except KafkaException:
            return False
        return True

    def shows(self, node: Node, user: str, topic: str) -> bool:
        """Whether a broker lets a user know of a topic."""
        found = AdminClient(self.client(node.bootstrap, user)).list_topics(topic, timeout=60)
        return found.topics[topic].error is None

    def asked(self, node: Node, key: ApiKey, values: Values, version: int = 1) -> Any:
        """A broker's answer to the administrator; this broker's and no other's."""
        with closing(AdminConnection(node.address, self.stores.authority)) as connection:
            return connection.ask(request(key, version, values), version)


class AdminConnection(Connection):
    """Through TLS, logged in as the administrator."""

    def __init__(self, address: tuple[str, int], authority: Path) -> None:
        super().__init__(address)
        self._tls = ssl.create_default_context(cafile=str(authority))

    def _open(self) -> None:
        super()._open()
        assert self._socket is not None
        self._socket = self._tls.wrap_socket(self._socket, server_hostname=HOST)
        shaken = self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert not shaken.error_code, shaken
        let_in = self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()), 1)
        assert not let_in.error_code, let_in


@pytest.fixture(scope="module")
def safe(kinds: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    """A running cluster."""
    with Safe(tmp_path_factory.mktemp("safe"), KAFKA if kinds[0] == KAFKA else OURS) as cluster:
        yield cluster


def test_nothing_is_open(safe: Safe) -> None:
    """Brokers advertise SASL_SSL alone, and their nodes in ZooKeeper are the brokers' to write."""
    safe.wait_registered()
    for number in safe.nodes:
        endpoints = safe.tree.json(f"/brokers/ids/{number}")["endpoints"]
        assert [endpoint.partition(":")[0] for endpoint in endpoints] == ["SASL_SSL"]
    for path in ("/brokers/topics", "/controller_epoch"):
        lists, _ = safe.tree.ask(lambda client, path=path: client.get_acls_async(path))
        may = {(each.id.scheme, each.id.id): each.perms for each in lists if each.id.scheme != "x509"}
        assert may == {("sasl", ZOOKEEPER_USER): Permissions.ALL, ("world", "anyone"): Permissions.READ}, path
    with pytest.raises(NoAuthError):
        safe.tree.ask(lambda client: client.get_children_async("/config/users"))
    with pytest.raises(NoAuthError):
        safe.tree.ask(lambda client: client.set_async("/controller_epoch", b"99"))


def make_user(safe: Safe, user: str) -> None:
    """A user of SCRAM, made at whichever broker."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(user, info, PASSWORD.encode())
    safe.ask(lambda admin: admin.alter_user_scram_credentials([wanted]))


def allow(safe: Safe, user: str, topic: str, operation: AclOperation) -> AclBinding:
    """Add it to the topic's access list."""
    about = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    binding = AclBinding(*about, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    safe.ask(lambda admin: admin.create_acls([binding]))
    return binding


def everywhere(safe: Safe, condition: Callable[[Node], bool], what: str) -> None:
    safe.wait(lambda: all(condition(node) for node in safe.nodes.values()), f"{what}, at each broker", WITHIN_S)


def test_users_are_seen_by_all(safe: Safe) -> None:
    """Who is made may log in at each broker; who is removed at none."""
    assert not any(safe.lets_in(node, "carol", REFUSED_S) for node in safe.nodes.values())
    make_user(safe, "carol")
    everywhere(safe, lambda node: safe.lets_in(node, "carol"), "carol may log in")
    gone = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    safe.ask(lambda admin: admin.alter_user_scram_credentials([gone]), KafkaError.RESOURCE_NOT_FOUND)
    everywhere(safe, lambda node: not safe.lets_in(node, "carol", REFUSED_S), "carol is unknown again")


def test_access_lists_are_seen_by_all(safe: Safe) -> None:
    make_user(safe, "bob")
    safe.create_topic("lists", partitions=3)
    everywhere(safe, lambda node: safe.lets_in(node, "bob"), "bob may log in")
    assert not any(safe.shows(node, "bob", "lists") for node in safe.nodes.values())
    binding = allow(safe, "bob", "lists", AclOperation.DESCRIBE)
    everywhere(safe, lambda node: safe.shows(node, "bob", "lists"), "bob sees the topic")
    about = AclBindingFilter(*(getattr(binding, name) for name in FILTERED))
    safe.ask(lambda admin: admin.delete_acls([about]))
    everywhere(safe, lambda node: not safe.shows(node, "bob", "lists"), "bob sees it no more")


def throttled_ms(safe: Safe, user: str, partition: int) -> int:
    """The longest that the leader of a partition tells a producer of 50 kB to wait."""
    events: list[ThrottleEvent] = []
    failed: list[object] = []
    producer = Producer({**safe.client(user=user, linger_ms=0), "throttle_cb": events.append})
    for _ in range(5):
        producer.produce(
            "quotas", b"x" * 10_000, partition=partition, on_delivery=lambda error, _: failed.append(error or 0)
        )
        producer.flush(WITHIN_S)
    assert failed == [0] * 5
    return max((round(event.throttle_time * 1000) for event in events), default=0)


def test_quotas_are_seen_by_all(safe: Safe) -> None:
    """A rate that is set at one broker holds a producer back at each of them, until it is removed at another."""
    make_user(safe, "dora")
    safe.create_topic("quotas", replicas=[[1], [2], [3]], min_insync_replicas=1)
    allow(safe, "dora", "quotas", AclOperation.WRITE)
    everywhere(safe, lambda node: safe.shows(node, "dora", "quotas"), "dora may write")
    indexes = range(3)
    assert [throttled_ms(safe, "dora", index) for index in indexes] == [0] * 3
    entity = [{"entity_type": "user", "entity_name": "dora"}]
    component = {"entity_type": "user", "match_type": 0, "match": "dora"}

    def alter(number: int, *, remove: bool) -> None:
        op = {"key": "producer_byte_rate", "value": 2000.0, "remove": remove}
        answer = safe.asked(
            safe.nodes[number], ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": entity, "ops": [op]}]}
        )
        assert [each.error_code for each in answer.entries] == [0]

    def limits(node: Node) -> list[float]:
        about = {"components": [component], "strict": True}
        answer = safe.asked(node, ApiKey.DESCRIBE_CLIENT_QUOTAS, about)
        return [each.value for entry in answer.entries for each in entry.values]

    alter(1, remove=False)
    everywhere(safe, lambda node: limits(node) == [2000.0], "the limit is known")
    for index in indexes:
        safe.wait(lambda index=index: throttled_ms(safe, "dora", index) > 0, "dora is held back", WITHIN_S)
    alter(3, remove=True)
    everywhere(safe, lambda node: limits(node) == [], "there is no limit")
    for index in indexes:
        safe.wait(lambda index=index: throttled_ms(safe, "dora", index) == 0, "dora is free", WITHIN_S)


def test_records_survive_a_broker(safe: Safe) -> None:
    """What a user wrote with acks=all while the leader was killed is there, once, also when it is back."""
    make_user(safe, "alice")
    safe.create_topic("orders", partitions=1)
    for operation in (AclOperation.WRITE, AclOperation.READ):
        allow(safe, "alice", "orders", operation)
    everywhere(safe, lambda node: safe.shows(node, "alice", "orders"), "alice may write")
    failed: list[object] = []
    producer = Producer(safe.client(user="alice", enable_idempotence=True, acks="all", linger_ms=0))
    safe.wait(lambda: safe.leader("orders", 0) > 0, "somebody leads")
    killed = safe.node(safe.leader("orders", 0))
    for number in range(RECORDS):
        producer.produce(
            "orders", b"%04d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if number % 10 == 0:
            producer.flush(WITHIN_S)
        if number == RECORDS // 2:
            killed.kill()
    assert producer.flush(WITHIN_S) == 0
    assert failed == []
    safe.start_node(killed.number)
    safe.wait_healthy()
    found: list[bytes] = []
    with closing(Consumer(safe.client(user="alice", group_id="none", enable_auto_commit=False))) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        deadline = time.monotonic() + WITHIN_S
        while len(found) < RECORDS and time.monotonic() < deadline:
            found += [message.value() or b"" for message in consumer.consume(RECORDS, 0.5) if message.error() is None]
    assert found == [b"%04d" % number for number in range(RECORDS)]
