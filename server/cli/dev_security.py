"""`barnabas dev --security`: an authority, certificates and users, created for a throw-away broker.

In the directory of the files (`client_access` names them): `ca.pem`; for each user `<user>.pem`, a key and its
certificate, and `<user>.properties`, for the commands and clients of Apache Kafka. Existing files are reused, so that
clients trust a restarted broker.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.security.client_access import (
    AUTHORITY,
    BROKER,
    MECHANISMS,
    ClientAccess,
    login_module,
)
from barnabas.server.security.sasl.scram_credentials import SALT_BYTES, ScramMechanism, make_credential

if TYPE_CHECKING:
    from trustme import LeafCert

ADMINISTRATOR: Final = "admin"
USERS: Final = {ADMINISTRATOR: "admin-secret", "alice": "alice-secret"}
"""The users if none is named; the first one always exists."""
_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_BROKER_NAME: Final = "broker"
_ITERATIONS: Final = 4096
_NAME: Final = re.compile("[A-Za-z0-9._-]+")
_PASSWORD: Final = re.compile("[!#-\\[\\]-~]+")
_USER_OF_CERTIFICATE: Final = r"RULE:^.*CN=([^,]+).*$/$1/"


class CannotSecure(Exception):
    """The text says why."""


def parse_users(texts: list[str]) -> dict[str, str]:
    """Passwords by name, from NAME:PASSWORD each; `USERS` without any. Raises CannotSecure."""
    if not texts:
        return dict(USERS)
    users = {ADMINISTRATOR: USERS[ADMINISTRATOR]}
    for text in texts:
        name, colon, password = text.partition(":")
        if not colon or not _NAME.fullmatch(name) or not _PASSWORD.fullmatch(password):
            raise CannotSecure(
                "--user must be NAME:PASSWORD, a name of letters, digits, '.', '_' and '-', and a password of "
                "printable characters without spaces, quotation marks and backslashes"
            )
        users[name] = password
    return users


class DevSecurity:
    """Of one broker. Makes the files it needs in `directory`. Raises CannotSecure, OSError."""

    def __init__(self, protocol: str, directory: str, users: Mapping[str, str]) -> None:
        self._protocol = protocol
        self._directory = Path(directory).absolute()
        self._users = users
        self._directory.mkdir(parents=True, exist_ok=True)
        if protocol.endswith("SSL"):
            with open(self._directory / ".lock", "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # brokers of a cluster share the directory, and start side by side
                self._make_certificates()

    def _make_certificates(self) -> None:
        here = self._directory
        if all((here / name).exists() for name in (AUTHORITY, BROKER, *(f"{user}.pem" for user in self._users))):
            return
        try:
            import trustme
        except ImportError:
            raise CannotSecure("--security with TLS needs the package trustme") from None
        kind = trustme.KeyType.ECDSA
        authority = trustme.CA(key_type=kind)
        _write(here / AUTHORITY, authority.cert_pem.bytes())
        _write(here / BROKER, _identity(authority.issue_cert(*_HOSTS, common_name=_BROKER_NAME, key_type=kind)))
        for user in self._users:
            # With an alternative name of some kind: Java does not read a certificate with none at all of trustme's.
            issued = authority.issue_cert(f"{user}@example.invalid", common_name=user, key_type=kind)
            _write(here / f"{user}.pem", _identity(issued))

    def settings(self, port: int, *, between_brokers: bool = False) -> list[str]:
        """KEY=VALUE each: of a listener on `port`. between_brokers: other brokers with the same files connect to it."""
        protocol, here, users = self._protocol, self._directory, self._users
        found = [
            f"listeners={protocol}://127.0.0.1:{port}",
            f"security.inter.broker.protocol={protocol}",
            f"super.users=User:{ADMINISTRATOR}",
        ]
        if protocol.endswith("SSL"):
            found += ["ssl.keystore.type=PEM", f"ssl.keystore.location={here / BROKER}"]
            found += ["ssl.truststore.type=PEM", f"ssl.truststore.location={here / AUTHORITY}"]
        if protocol == "SSL" and between_brokers:
            found.append(f"super.users=User:{ADMINISTRATOR};User:{_BROKER_NAME}")
        if protocol == "SSL":
            found += ["ssl.client.auth=requested", f"ssl.principal.mapping.rules={_USER_OF_CERTIFICATE}"]
        if protocol.startswith("SASL"):
            options = {"username": ADMINISTRATOR, "password": users[ADMINISTRATOR]}
            options |= {f"user_{name}": password for name, password in users.items()}
            listener = protocol.lower()
            found += [f"sasl.enabled.mechanisms={','.join(MECHANISMS)}", "sasl.mechanism.inter.broker.protocol=PLAIN"]
            found.append(f"listener.name.{listener}.plain.sasl.jaas.config={login_module('PLAIN', options)}")
        return found

    def add_users(self, config: BrokerConfig) -> None:
        """Write users of SCRAM into the store. Raises LogDirError, StoreError, OSError."""
        if not self._protocol.startswith("SASL"):
            return
        from barnabas.server.cli.users import add

        add(
            config,
            {
                name: {
                    mechanism.value: make_credential(
                        mechanism, password, secrets.token_bytes(SALT_BYTES), _ITERATIONS
                    ).text()
                    for mechanism in ScramMechanism
                }
                for name, password in self._users.items()
            },
        )

    def administrator(self, bootstrap: str) -> ClientAccess:
        """How the super user comes in."""
        return ClientAccess(
            bootstrap, self._protocol, str(self._directory), ADMINISTRATOR, self._users[ADMINISTRATOR], "PLAIN"
        )

    @property
    def administrators_file(self) -> str:
        """What `write_properties` writes for the super user."""
        return str(self._directory / f"{ADMINISTRATOR}.properties")

    def write_properties(self, bootstrap: str) -> None:
        """A file of settings for each user: what `--command-config` and its like take. Raises OSError."""
        for name, password in self._users.items():
            options = ClientAccess(bootstrap, self._protocol, str(self._directory), name, password).java()
            text = "".join(f"{key}={value}\n" for key, value in options.items())
            _write(self._directory / f"{name}.properties", text.encode())


def _identity(issued: LeafCert) -> bytes:
    """Private key and certificates; the key in PKCS#8, as Java reads no other."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificates = b"".join(each.bytes() for each in issued.cert_chain_pems)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificates


def _write(path: Path, data: bytes) -> None:
    """Readable only by its owner."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
