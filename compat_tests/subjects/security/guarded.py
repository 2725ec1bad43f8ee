"""A broker with access control lists, delegation tokens and a certificate, and its users.

| listener | log-in |
| --- | --- |
| PLAINTEXT | none; whoever comes is a super user |
| CLIENTS | PLAIN with the users below, SCRAM-SHA-256 and -512 with users that are made, and with delegation tokens |
| SECURE | TLS, with the certificate in `certificate` |

Users of PLAIN: `alice`, `bob`, `carol`, each with the password `<name>-secret`. Resources that no list speaks of are
closed to them.
"""

from __future__ import annotations

import shutil
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.ports import free_ports

USERS = ("alice", "bob", "carol")
EXPIRY_MS, LIFETIME_MS = 600_000, 3_600_000
"""Of tokens: `delegation.token.expiry.time.ms`, `delegation.token.max.lifetime.ms`."""
_MODULES = "org.apache.kafka.common.security"


@dataclass
class Guarded:
    """The broker, where its listeners are (HOST:PORT), and a place for files."""

    broker: Broker
    plaintext: str
    clients: str
    secure: str
    directory: Path
    authority: trustme.CA

    @property
    def certificate(self) -> Path:
        """The file with the certificate and the key of SECURE."""
        return self.directory / "broker.pem"

    def new_certificate(self) -> None:
        """Put another one, for the same names, into the file."""
        _certificate(self.authority, self.certificate)

    def stranger(self) -> Path:
        """A file with a certificate of somebody else."""
        file = self.directory / "stranger.pem"
        _certificate(self.authority, file, "stranger")
        return file

    def serial_number(self) -> int:
        """Of the certificate that the listener SECURE shows."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        host, port = self.secure.split(":")
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            shown = wrapped.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)

    def login(self, user: str, password: str | None = None, mechanism: str = "PLAIN", *, by_token: bool = False) -> str:
        """A file for a tool's --command-config; without a password: of PLAIN, the user's own."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        entry = f'username="{user}" password="{password or user + "-secret"}"' + ' tokenauth="true"' * by_token
        text = (
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={_MODULES}.{module} required {entry};\n"
        )
        file = self.directory / f"{user}-{mechanism}.properties"
        file.write_text(text)
        return str(file)


def start(directory: Path, *, peer: bool) -> Guarded:
    """Start ours, or Apache Kafka, with the listeners and the users above."""
    plaintext, clients, secure, controller = free_ports(4)
    listeners = f"PLAINTEXT://127.0.0.1:{plaintext},CLIENTS://127.0.0.1:{clients},SECURE://127.0.0.1:{secure}"
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    _certificate(authority, directory / "broker.pem")
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    settings = [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SECURE:SSL",
        "inter.broker.listener.name=PLAINTEXT",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.clients.plain.sasl.jaas.config={_MODULES}.plain.PlainLoginModule required {users};",
        f"listener.name.clients.scram-sha-256.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
        f"listener.name.clients.scram-sha-512.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
        "listener.name.secure.ssl.keystore.type=PEM",
        f"listener.name.secure.ssl.keystore.location={directory / 'broker.pem'}",
        "delegation.token.secret.key=key-of-the-tests",
        f"delegation.token.expiry.time.ms={EXPIRY_MS}",
        f"delegation.token.max.lifetime.ms={LIFETIME_MS}",
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
    places = (f"127.0.0.1:{port}" for port in (plaintext, clients, secure))
    return Guarded(broker, *places, directory, authority)


def _certificate(authority: trustme.CA, file: Path, name: str = "broker") -> None:
    # The same subject each time: another one would be refused.
    made = authority.issue_cert(
        "127.0.0.1", "localhost", common_name=name, organization_name="Example", organization_unit_name="ops"
    )
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    in_pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Java reads no other form
    written = file.with_suffix(".new")
    written.write_bytes(b"".join([in_pkcs8, *(each.bytes() for each in made.cert_chain_pems)]))
    shutil.move(written, file)
