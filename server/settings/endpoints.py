"""Listener lists: `PLAINTEXT://host:9092,INTERNAL://[::1]:0` as values.

Names are upper-cased as in Kafka. An empty host stands for every interface when listening, and for this machine's name
when advertised. Opening sockets is `barnabas.server.broker.broker`'s work; what is advertised for port 0 is known only
then (`BrokerConfig.advertised`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ANY_ADDRESS = ("", "0.0.0.0", "::")
_URI = re.compile(
    r"(?P<name>[^:/]*)://(?:\[(?P<six>[0-9a-zA-Z\-%._:]*)\]|(?P<host>[0-9a-zA-Z\-%._]*)):(?P<port>-?[0-9]+)"
)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """One listener. `protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. `port` 0: any free one."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def split_list(text: str | None) -> list[str]:
    """Comma-separated parts without blanks and empty ones."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,…` → {NAME: PROTOCOL}. Raises ValueError with what is wrong, to follow the key and value."""
    protocols: dict[str, str] = {}
    for pair in split_list(text):
        name, colon, protocol = pair.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name:
            raise ValueError(f"{pair!r} must be written as NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ValueError(f"{protocol} must be one of {', '.join(PROTOCOLS)}")
        if name in protocols:
            raise ValueError(f"{name} stands there twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(text: str, protocols: dict[str, str], *, distinct_ports: bool) -> tuple[ListenAddress, ...]:
    """The listeners in order. Raises ValueError with what is wrong, to follow the key and value."""
    listeners: list[ListenAddress] = []
    for uri in split_list(text):
        match = _URI.fullmatch(uri)
        if match is None:
            raise ValueError(f"{uri!r} must be written as NAME://host:port")
        name = match["name"].upper()
        if name not in protocols:
            raise ValueError(f"{name or uri!r} must be in listener.security.protocol.map")
        port = int(match["port"])
        if not 0 <= port <= 65535:
            raise ValueError(f"the port of {name} must be from 0 to 65535")
        listeners.append(ListenAddress(name, protocols[name], match["six"] or match["host"] or "", port))
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the listener name {name} must stand there once")
    if distinct_ports:
        _check_ports(listeners)
    return tuple(listeners)


def parse_http(text: str) -> ListenAddress:
    """`http://host:port`, where metrics are served; without a host on the loopback addresses. Raises ValueError."""
    match = _URI.fullmatch(text)
    if match is None or match["name"] != "http" or not 0 <= int(match["port"]) <= 65535:
        raise ValueError(f"{text!r} must be written as http://host:port")
    return ListenAddress("http", "PLAINTEXT", match["six"] or match["host"] or "localhost", int(match["port"]))


def parse_control(text: str) -> ListenAddress:
    """`HOST:PORT` of the control channel. Raises ValueError."""
    match = _URI.fullmatch(f"http://{text}")
    if match is None or not 0 <= int(match["port"]) <= 65535 or not (match["six"] or match["host"]):
        raise ValueError(f"{text!r} must be written as HOST:PORT, such as 127.0.0.1:0")
    return ListenAddress("control", "PLAINTEXT", match["six"] or match["host"], int(match["port"]))


def _check_ports(listeners: list[ListenAddress]) -> None:
    """A port may be used twice only by one IPv4 and one IPv6 address."""
    for index, one in enumerate(listeners):
        for other in listeners[index + 1 :]:
            both_families = _family(one.host) and _family(other.host) and _family(one.host) != _family(other.host)
            if one.port == other.port != 0 and not both_families:
                raise ValueError(f"{one.name} and {other.name} must have different ports")


def _family(host: str) -> int:
    """4 or 6 for an address, 0 for a name or nothing."""
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", host) else 0


def parse_counts(text: str) -> dict[str, int]:
    """`host:count,…` of max.connections.per.ip.overrides. Raises ValueError."""
    counts: dict[str, int] = {}
    for pair in split_list(text):
        host, colon, count = pair.rpartition(":")
        if not colon or not host.strip() or not count.strip().isdecimal():
            raise ValueError(f"{pair!r} must be written as host:count")
        counts[host.strip()] = int(count)
    return counts
