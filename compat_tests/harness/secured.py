"""A broker with a listener for each kind of protection, ours or Apache Kafka 4.3.1, and what clients need for it.

| listener | protocol | |
| --- | --- | --- |
| PLAINTEXT | PLAINTEXT | for what makes users, topics and lists |
| CLIENTS | SASL_PLAINTEXT | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| SHORT | SASL_PLAINTEXT | the same; sessions last `SESSION_MS` (KIP-368) |
| TLS | SSL | asks for no certificate; its own is in PEM |
| MUTUAL | SSL | wants a certificate; its own, and whom it trusts, are in PKCS12 |
| SECURE | SASL_SSL | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| BRIEF | SASL_SSL | the same; sessions last `SESSION_MS` |
| EXPIRED | SSL | its certificate has expired |
| ELSEWHERE | SSL | its certificate names another host |
| RENEWED | SSL | for a certificate that is replaced |

`alice` can log in by every mechanism. Access control is on: what has no access control list is open to everybody.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.certificates import Authority, Identity
from compat_tests.harness.ports import free_ports
from compat_tests.harness.tokens import AUDIENCE, ISSUER, TokenIssuer

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
USER, PASSWORD = "alice", "alice-secret"
SESSION_MS = 2500
HOST = "127.0.0.1"
BROKER_NAME = "CN=broker,O=Example"
STORE_PASSWORD = "store-secret"
_MODULES = "org.apache.kafka.common.security"
_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "CLIENTS": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SECURE": "SASL_SSL",
    "BRIEF": "SASL_SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "RENEWED": "SSL",
}
_JAAS = {
    "PLAIN": 'plain.PlainLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-256": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "SCRAM-SHA-512": 'scram.ScramLoginModule required username="{user}" password="{password}";',
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;",
}
_WITHIN_S = 60


@dataclass(frozen=True)
class Access:
    """How a client reaches a broker. authority: a file with whom it trusts (PEM); None: there is no TLS. identity: one
    with its own key and certificate (PEM); None: it shows none. Beside each of the two lies the same as PKCS12, with
    the suffix `.p12` and `STORE_PASSWORD`. mechanism: empty, or of SASL, with password or token.
    """

    bootstrap: str
    authority: Path | None = None
    identity: Path | None = None
    mechanism: str = ""
    user: str = USER
    password: str = PASSWORD
    token: str = ""

    @property
    def protocol(self) -> str:
        """As `security.protocol` names it."""
        below = "PLAINTEXT" if self.authority is None else "SSL"
        return f"SASL_{below}" if self.mechanism else below


def java_settings(access: Access, *, pkcs12: bool = False) -> Iterator[tuple[str, str]]:
    """What Java's clients are told of it, but for a token. pkcs12: in stores of that kind, not in PEM."""
    yield "bootstrap.servers", access.bootstrap
    yield "security.protocol", access.protocol
    for store, path in (("truststore", access.authority), ("keystore", access.identity)):
        if path is None:
            continue
        yield f"ssl.{store}.type", "PKCS12" if pkcs12 else "PEM"
        yield f"ssl.{store}.location", str(path.with_suffix(".p12") if pkcs12 else path)
        if pkcs12:
            yield f"ssl.{store}.password", STORE_PASSWORD
    if access.mechanism:
        yield "sasl.mechanism", access.mechanism
        entry = _JAAS[access.mechanism].format(user=access.user, password=access.password)
        yield "sasl.jaas.config", f"{_MODULES}.{entry}"


class Stores:
    """Files of certificates in a directory, as PEM and PKCS12."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._issuer, self._other = Authority("CN=authority"), Authority("CN=another authority")
        self.authority = self._keep("authority", self._issuer)
        self.other_authority = self._keep("other-authority", self._other)

    def broker(self, name: str, *, host: str = HOST, expired: bool = False, other: bool = False) -> Path:
        """A broker's, of `BROKER_NAME`, in a file of this name; again and again. other: of the other authority."""
        issuer = self._other if other else self._issuer
        return self._keep(name, issuer.issue(BROKER_NAME, hosts=[host], expired=expired))

    def client(self, name: str, subject: str, *, expired: bool = False, other: bool = False) -> Path:
        """A client's, in a file of this name."""
        issuer = self._other if other else self._issuer
        return self._keep(name, issuer.issue(subject, expired=expired))

    def _keep(self, name: str, issued: Authority | Identity) -> Path:
        path = self._directory / f"{name}.pem"
        for file, data in ((path, issued.pem()), (path.with_suffix(".p12"), issued.pkcs12(STORE_PASSWORD))):
            # As a whole: a broker may read it at any time.
            new = file.with_name(f"{file.name}.new")
            new.write_bytes(data)
            new.replace(file)
        return path


class Secured:
    """The broker, started; where its listeners are, and what goes with them."""

    def __init__(self, broker: Broker, addresses: Mapping[str, str], stores: Stores, tokens: TokenIssuer) -> None:
        self.broker = broker
        self.stores = stores
        self.tokens = tokens
        self._addresses = addresses
        self._admin = AdminClient({"bootstrap.servers": addresses["PLAINTEXT"]})

    @property
    def plaintext(self) -> str:
        """HOST:PORT of the listener for everybody."""
        return self._addresses["PLAINTEXT"]

    def access(self, listener: str, **what: Any) -> Access:
        """To a listener, trusting its authority if it has TLS. what: the fields of `Access`."""
        if _PROTOCOLS[listener].endswith("SSL"):
            what.setdefault("authority", self.stores.authority)
        return Access(self._addresses[listener], **what)

    def login(self, listener: str, mechanism: str) -> Access:
        """As `alice`."""
        token = self.tokens.token(USER) if mechanism == "OAUTHBEARER" else ""
        return self.access(listener, mechanism=mechanism, token=token)

    def make_topic(self, name: str, *, only: str = "") -> None:
        """A topic of one partition. only: the principal that may write to and read it; empty: everybody."""
        for future in self._admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result(_WITHIN_S)
        if only:
            operations = (AclOperation.WRITE, AclOperation.READ)
            what = (ResourceType.TOPIC, name, ResourcePatternType.LITERAL, only, "*")
            lists = [AclBinding(*what, operation, AclPermissionType.ALLOW) for operation in operations]
            for done in self._admin.create_acls(lists).values():
                done.result(_WITHIN_S)
            # Under KRaft the controller answers before the broker has heard of them.
            wanted = AclBindingFilter(*what[:3], None, None, AclOperation.ANY, AclPermissionType.ANY)
            _wait(lambda: set(lists) <= set(self._admin.describe_acls(wanted).result(_WITHIN_S)), "the lists are made")

    def renew(self, listener: str, *, other: bool) -> None:
        """Replace its certificate by a new one, and wait until that is shown. other: of the other authority."""
        path = self.stores.broker(listener.lower(), other=other)
        (broker_id,) = self._admin.list_topics(timeout=_WITHIN_S).brokers
        key = f"listener.name.{listener.lower()}.ssl.keystore.location"
        entry = ConfigEntry(key, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(_WITHIN_S)
        host, _, port = self._addresses[listener].rpartition(":")
        deadline = time.monotonic() + _WITHIN_S
        # Apache Kafka's three network threads get it one after the other, and take turns.
        shown = 0
        while shown < 3:
            assert time.monotonic() < deadline, "the new certificate is not shown"
            shown += 1 if ssl.get_server_certificate((host, int(port))).strip() in path.read_text() else -shown

    def make_user(self) -> None:
        """One mechanism after the other: under KRaft a user may stand in a request once."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for future in self._admin.alter_user_scram_credentials([wanted]).values():
                future.result(_WITHIN_S)
        _wait(self._is_made, "the user is made")

    def _is_made(self) -> bool:
        asked: Any = self._admin.describe_user_scram_credentials([USER])
        try:
            return len(asked[USER].result(_WITHIN_S).scram_credential_infos) == 2
        except KafkaException as error:
            if error.args[0].code() != KafkaError.RESOURCE_NOT_FOUND:
                raise
            return False


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {_WITHIN_S} s: {what}"
        time.sleep(0.02)


def start(directory: Path, *, peer: bool) -> Secured:
    """Start ours, or Apache Kafka, with the listeners and the user above."""
    *ports, controller = free_ports(len(_PROTOCOLS) + 1)
    addresses = {name: f"{HOST}:{port}" for name, port in zip(_PROTOCOLS, ports, strict=True)}
    stores = Stores(directory / "certificates")
    tokens = TokenIssuer(directory / "jwks.json")
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    settings = [*_common(), *_sasl(tokens.jwks), *_tls(stores)]
    if peer:
        settings += [
            f"listeners={listeners},CONTROLLER://{HOST}:{controller}",
            f"advertised.listeners={listeners}",
            f"controller.quorum.voters=1@{HOST}:{controller}",
        ]
        # Apache Kafka reads keys from files that are named here, and from no others.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.jwks.as_uri()}"
        broker = start_kafka(directory, settings, wait=False, java_options=[allowed])
        broker.bootstrap = addresses["PLAINTEXT"]
        wait_until_open(broker)
    else:
        broker = start_barnabas(directory, [f"listeners={listeners}", f"log.dirs={directory / 'data'}", *settings])
    made = Secured(broker, addresses, stores, tokens)
    try:
        made.make_user()
    except BaseException:
        broker.stop()
        raise
    return made


def _common() -> list[str]:
    protocols = {**_PROTOCOLS, "CONTROLLER": "PLAINTEXT"}
    return [
        f"listener.security.protocol.map={','.join(f'{name}:{protocol}' for name, protocol in protocols.items())}",
        "inter.broker.listener.name=PLAINTEXT",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    ]


def _sasl(jwks: Path) -> Iterator[str]:
    yield f"sasl.enabled.mechanisms={','.join(PASSWORDS)}"
    yield f"sasl.oauthbearer.jwks.endpoint.url={jwks.as_uri()}"
    yield f"sasl.oauthbearer.expected.issuer={ISSUER}"
    yield f"sasl.oauthbearer.expected.audience={AUDIENCE}"
    for listener, protocol in _PROTOCOLS.items():
        if not protocol.startswith("SASL"):
            continue
        name = f"listener.name.{listener.lower()}"
        yield f'{name}.plain.sasl.jaas.config={_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        yield f"{name}.scram-sha-256.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;"
        yield f"{name}.scram-sha-512.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;"
        if protocol == "SASL_SSL":
            yield f"{name}.sasl.enabled.mechanisms={','.join(MECHANISMS)}"
            module = f"{_MODULES}.oauthbearer.OAuthBearer"
            yield f"{name}.oauthbearer.sasl.jaas.config={module}LoginModule required;"
            yield f"{name}.oauthbearer.sasl.server.callback.handler.class={module}ValidatorCallbackHandler"
        if listener in ("SHORT", "BRIEF"):
            yield f"{name}.connections.max.reauth.ms={SESSION_MS}"


def _tls(stores: Stores) -> Iterator[str]:
    shown = {
        "TLS": stores.broker("tls"),
        "MUTUAL": stores.broker("mutual"),
        "SECURE": stores.broker("secure"),
        "BRIEF": stores.broker("brief"),
        "EXPIRED": stores.broker("expired", expired=True),
        "ELSEWHERE": stores.broker("elsewhere", host="elsewhere.example"),
        "RENEWED": stores.broker("renewed"),
    }
    for listener, path in shown.items():
        name = f"listener.name.{listener.lower()}"
        if listener == "MUTUAL":
            yield f"{name}.ssl.client.auth=required"
            for store, file in (("keystore", path), ("truststore", stores.authority)):
                yield f"{name}.ssl.{store}.type=PKCS12"
                yield f"{name}.ssl.{store}.location={file.with_suffix('.p12')}"
                yield f"{name}.ssl.{store}.password={STORE_PASSWORD}"
        else:
            yield f"{name}.ssl.keystore.type=PEM"
            yield f"{name}.ssl.keystore.location={path}"
