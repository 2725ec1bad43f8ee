"""The brokers that measures share, started once for a run.

- plain: one broker with its defaults.
- tls: a listener with SSL beside the plain one, the same certificate for each broker, a key of the curve P-256.
- acl: an authorizer. Clients are nobody in particular (`User:ANONYMOUS`) and allowed by an ACL to use topics, groups
  and transactional ids by prefix or by `*`, among 200 ACLs of others.
- cleaner: a cleaner that looks for work ten times a second.
- four: what `barnabas cluster --brokers 4` starts, four brokers and their store of metadata, which are charged
  together; beside it one Apache Kafka. Replication factor 1.
- three: three brokers with ZooKeeper, replication factor 3. Apache Kafka is 3.9.1, the last that knows ZooKeeper.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from compat_tests.bench.brokers import HOST, KAFKA, Server, Side, Subject, ready
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.nodes import KAFKA as KAFKA_NODE
from compat_tests.clusters.nodes import KAFKA_SERVER_OPTIONS, OURS, KafkaNode
from compat_tests.harness.brokers import START_TIMEOUT_S
from compat_tests.harness.certificates import Authority
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import Background

OTHERS = 200
CLUSTER_HEAP = "512m"
CLUSTER_SETTINGS = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "30000"}
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Place = Callable[[Side, Path], Subject]


def plain(side: Side, directory: Path) -> Subject:
    """See above."""
    return _started(side, directory)


def cleaner(side: Side, directory: Path) -> Subject:
    """See above."""
    return _started(side, directory, "log.cleaner.backoff.ms=100")


def tls(side: Side, directory: Path) -> Subject:
    """See above."""
    files = directory.with_name(f"{directory.name}-certificates")
    files.mkdir(parents=True, exist_ok=True)
    trusted, own = files / "authority.pem", files / "broker.pem"
    authority = Authority()
    trusted.write_bytes(authority.pem())
    own.write_bytes(authority.issue("CN=broker", hosts=[HOST]).pem())
    open_address, secure_address = (f"{HOST}:{port}" for port in free_ports(2))
    listeners = f"PLAINTEXT://{open_address},SSL://{secure_address}"
    settings = ["ssl.keystore.type=PEM", f"ssl.keystore.location={own}"]
    if side.name == KAFKA:
        (controller,) = free_ports(1)
        settings += [
            f"listeners={listeners},CONTROLLER://{HOST}:{controller}",
            f"advertised.listeners={listeners}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            f"controller.quorum.voters=1@{HOST}:{controller}",
        ]
    else:
        settings.append(f"listeners={listeners}")
    subject = _started(side, directory, *settings, bootstrap=open_address)
    subject.clients = secure_address
    subject.java = (
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={trusted}",
    )
    subject.librdkafka = {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
    return subject


def acl(side: Side, directory: Path) -> Subject:
    """See above. What has no ACL is everybody's, so that ACLs and topics can be made."""
    subject = _started(side, directory, f"authorizer.class.name={AUTHORIZER}", "allow.everyone.if.no.acl.found=true")
    allowed = [
        _allow(ResourceType.TOPIC, "bench-", ResourcePatternType.PREFIXED, "User:ANONYMOUS"),
        _allow(ResourceType.GROUP, "*", ResourcePatternType.LITERAL, "User:ANONYMOUS"),
        _allow(ResourceType.TRANSACTIONAL_ID, "bench-", ResourcePatternType.PREFIXED, "User:ANONYMOUS"),
    ]
    allowed += [
        _allow(ResourceType.TOPIC, f"team-{number}-", ResourcePatternType.PREFIXED, f"User:user-{number}")
        for number in range(OTHERS)
    ]
    for future in subject.admin.create_acls(allowed).values():
        future.result(60)
    return subject


def four(side: Side, directory: Path) -> Subject:
    """See above."""
    if side.name == KAFKA:
        return plain(side, directory)
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [side.python, "-P", "-m", "barnabas", "cluster", "--brokers", "4", "--port", "0"]
    arguments += ["--data", str(directory / "data"), "--set", "group.initial.rebalance.delay.ms=0"]
    for key in ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor"):
        arguments += ["--set", f"{key}=1"]
    process = Background(arguments, {**os.environ, "PYTHONPATH": str(side.checkout)})
    try:
        process.wait_for("bootstrap=", timeout=START_TIMEOUT_S)
        said = next(line for line in process.lines if line.startswith("bootstrap="))
        bootstrap = said.split()[0].removeprefix("bootstrap=")
        subject = Subject(side, bootstrap, lambda: [process.process.pid], lambda: void(process.stop(60)))
        ready(subject)
    except BaseException:
        process.stop()
        raise
    return subject


def three(side: Side, directory: Path) -> Subject:
    """See above. The ACKs of what is written are those of all replicas (acks=all is both clients' default)."""
    kinds = [KAFKA_NODE if side.name == KAFKA else OURS] * 3
    cluster = Cluster(directory, kinds, settings=CLUSTER_SETTINGS, start=False)
    cluster.__enter__()
    try:
        for node in cluster.nodes.values():
            if isinstance(node, KafkaNode):
                node.heap, node.options, node.logging = CLUSTER_HEAP, KAFKA_SERVER_OPTIONS, QUIET
            node.start()
        for node in cluster.nodes.values():
            node.wait_open()
        cluster.wait_registered()
    except BaseException:
        cluster.close()
        raise
    subject = Subject(
        side,
        cluster.bootstrap,
        lambda: [node.pid for node in cluster.nodes.values()],
        cluster.close,
        replication=3,
        cluster=cluster,
    )
    ready(subject)
    return subject


PLACES: dict[str, Place] = {each.__name__: each for each in (plain, tls, acl, cleaner, four, three)}


def _started(side: Side, directory: Path, *settings: str, bootstrap: str = "") -> Subject:
    server = Server(side, directory, settings, bootstrap)
    try:
        server.start()
        subject = Subject.of(server)
        ready(subject)
    except BaseException:
        server.stop()
        raise
    return subject


def void(_: object) -> None:
    """Forget a value."""


def _allow(kind: ResourceType, name: str, pattern: ResourcePatternType, principal: str) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)
