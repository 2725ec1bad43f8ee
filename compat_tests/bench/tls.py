"""The measures over TLS: a listener with SSL beside the plain one, the same certificate and settings for each broker.

TLS 1.3 and 1.2 as the two sides agree on it; keys of the curve P-256. What makes topics comes in plain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compat_tests.bench.measures import (
    Scale,
    Subject,
    consume_one,
    java_consume,
    java_produce,
    librdkafka_consume,
    librdkafka_produce,
    produce_one,
    start,
)
from compat_tests.bench.report import KAFKA
from compat_tests.harness.certificates import Authority
from compat_tests.harness.ports import free_ports

HOST = "127.0.0.1"

MEASURES: dict[str, Callable[[Subject], dict[str, float]]] = {
    "Java produce over TLS, 1 partition, defaults": produce_one,
    "Java consume over TLS, 1 partition, defaults": consume_one,
    "librdkafka produce over TLS, 1 partition": librdkafka_produce,
    "librdkafka consume over TLS, 1 partition": librdkafka_consume,
}


def start_subject(name: str, directory: Path, before: Path, scale: Scale) -> Subject:
    """A broker with both listeners, and what its clients need."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    files = directory.with_name(f"{directory.name}-certificates")
    files.mkdir(exist_ok=True)
    trusted, own, java = files / "authority.pem", files / "broker.pem", files / "client.properties"
    authority = Authority()
    trusted.write_bytes(authority.pem())
    own.write_bytes(authority.issue("CN=broker", hosts=[HOST]).pem())
    java.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={trusted}\nclient.id=bench\n"
    )
    plain, secure = (f"{HOST}:{port}" for port in free_ports(2))
    listeners = f"PLAINTEXT://{plain},SSL://{secure}"
    settings = ["ssl.keystore.type=PEM", f"ssl.keystore.location={own}"]
    if name == KAFKA:
        (controller,) = free_ports(1)
        settings += [
            f"listeners={listeners},CONTROLLER://{HOST}:{controller}",
            f"advertised.listeners={listeners}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            f"controller.quorum.voters=1@{HOST}:{controller}",
        ]
    else:
        settings.append(f"listeners={listeners}")
    broker = start(name, directory, before, settings)
    broker.bootstrap = plain
    options = {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
    return Subject(broker, scale, clients=secure, command_config=java, librdkafka=options)


def warm_up(subject: Subject) -> None:
    """Let a broker that has just been started see the work once."""
    topic, _ = java_produce(subject, 1, subject.scale.warm_up_records)
    java_consume(subject, topic, subject.scale.warm_up_records)
    subject.delete_topic(topic)
