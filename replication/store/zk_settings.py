"""How to reach ZooKeeper: addresses, logins, TLS, as values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are for ZooKeeper."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """TLS to ZooKeeper. All files are PEM.

    trusted: certificate authorities (None: those of the operating system). identity: our private key and certificates
    in one file (None: the server does not ask for any); password of the key. versions: of TLS, 'TLSv1.2', 'TLSv1.3'.
    """

    trusted: str | None = None
    identity: str | None = None
    password: str | None = field(default=None, repr=False)
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """How to reach ZooKeeper.

    connect: host:port,host:port/chroot as in `zookeeper.connect` (port 2181 if left out). connection_timeout_ms: for
    the start; None: as long as a session lasts. max_in_flight: requests sent and not answered. sasl: for DIGEST-MD5,
    what Apache Kafka's JAAS section `Client` names; digest: for ZooKeeper's own scheme of that name. set_acl: make
    nodes with Apache Kafka's access lists, which needs sasl, digest or a TLS identity.

    Raises ValueError if it cannot be used.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int | None = None
    max_in_flight: int = 10
    set_acl: bool = False
    sasl: Login | None = None
    digest: Login | None = None
    tls: ZooKeeperTls | None = None

    def __post_init__(self) -> None:
        hosts, chroot = split_connect(self.connect)
        for host in hosts.split(","):
            _check_host(host.strip())
        if chroot and ("//" in chroot or "\0" in chroot):
            raise ValueError(f"{chroot!r} is no path of a node")
        if self.set_acl and not (self.sasl or self.digest or (self.tls and self.tls.identity)):
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
