"""A broker with listeners for each case, and its users.

| listener | log-in |
| --- | --- |
| PLAINTEXT | none: for what makes users and topics |
| CLIENTS | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| SHORT | the same; sessions last three seconds (KIP-368) |

`alice` can log in by all mechanisms with `PASSWORD`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.ports import free_ports

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "alice-secret"
SESSION_MS = 3000
_MODULES = "org.apache.kafka.common.security"
_LISTENERS = ("clients", "short")
_USERS_MADE_WITHIN_S = 30


@dataclass
class Secured:
    """The broker, and where its listeners are: `plaintext`, `clients`, `short` are HOST:PORT."""

    broker: Broker
    plaintext: str
    clients: str
    short: str


def start(directory: Path, *, peer: bool) -> Secured:
    """Start ours, or Apache Kafka, with the listeners and the user above."""
    plaintext, clients, short, controller = free_ports(4)
    listeners = f"PLAINTEXT://127.0.0.1:{plaintext},CLIENTS://127.0.0.1:{clients},SHORT://127.0.0.1:{short}"
    settings = [
        "listener.security.protocol.map="
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.short.connections.max.reauth.ms={SESSION_MS}",
    ]
    for listener in _LISTENERS:
        name = f"listener.name.{listener}"
        settings += [
            f'{name}.plain.sasl.jaas.config={_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
            f"{name}.scram-sha-256.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
            f"{name}.scram-sha-512.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
        ]
    if peer:
        settings += [
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={listeners}",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        ]
        broker = start_kafka(directory, settings, wait=False)
        broker.bootstrap = f"127.0.0.1:{plaintext}"
        wait_until_open(broker)
    else:
        broker = start_barnabas(directory, [f"listeners={listeners}", f"log.dirs={directory / 'data'}", *settings])
    made = Secured(broker, f"127.0.0.1:{plaintext}", f"127.0.0.1:{clients}", f"127.0.0.1:{short}")
    try:
        _make_user(made.plaintext)
    except BaseException:
        broker.stop()
        raise
    return made


def _make_user(bootstrap: str) -> None:
    """One mechanism after the other: under KRaft a user may stand in a request once."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 8192)
        wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(_USERS_MADE_WITHIN_S)
    deadline = time.monotonic() + _USERS_MADE_WITHIN_S
    while len(admin.describe_user_scram_credentials([USER])[USER].result(10).scram_credential_infos) < 2:
        assert time.monotonic() < deadline, "the user was not made"


def make_topic(bootstrap: str, name: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(30)
