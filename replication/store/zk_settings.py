"""How to reach ZooKeeper: addresses, logins, TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are for ZooKeeper."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """How to reach ZooKeeper.

    connect: host:port,host:port/chroot as in `zookeeper.connect` (port 2181 if left out). connection_timeout_ms: for
    the start; None: as long as a session lasts. max_in_flight: requests sent and not answered. sasl: for DIGEST-MD5,
    what Apache Kafka's JAAS section `Client` names; digest: for ZooKeeper's own scheme of that name. tls: None for
    connections without; shows_certificate: whether it has one of ours. set_acl: make nodes with Apache Kafka's access
    lists, which needs sasl, digest or a certificate.

    Raises ValueError if it cannot be used.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int | None = None
    max_in_flight: int = 10
    set_acl: bool = False
    sasl: Login | None = None
    digest: Login | None = None
    tls: ssl.SSLContext | None = None
    shows_certificate: bool = False

    def __post_init__(self) -> None:
        hosts, chroot = split_connect(self.connect)
        for host in hosts.split(","):
            _check_host(host.strip())
        if chroot and ("//" in chroot or "\0" in chroot):
            raise ValueError(f"{chroot!r} is no path of a node")
        if self.set_acl and not (self.sasl or self.digest or (self.tls and self.shows_certificate)):
            raise ValueError("access lists need a login: SASL, or a TLS key and certificate")


def split_connect(connect: str) -> tuple[str, str]:
    """'h:1,h:2/a/b' → ('h:1,h:2', '/a/b'); the path is '' if there is none."""
    hosts, _, path = connect.partition("/")
    path = path.strip("/")
    return hosts.strip(), f"/{path}" if path else ""


def _check_host(text: str) -> None:
    """host, host:port, [v6] or [v6]:port. Raises ValueError."""
    if not text:
        raise ValueError("it names no host")
    bracketed = text.startswith("[")
    host, _, port = text.rpartition("]")[2].rpartition(":") if bracketed else text.partition(":")
    if (not host and not bracketed) or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{text!r} is no address")
