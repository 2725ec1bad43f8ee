"""Settings of the console beside the broker: `barnabas console`, started and ended with it. They are ours."""

from __future__ import annotations

from ipaddress import ip_network
from urllib.parse import urlsplit

from barnabas.server.settings.endpoints import parse_http
from barnabas.server.settings.model import Check, Setting, Type, Value, works

_OURS = "not a setting of Apache Kafka"


def _is_http(value: Value) -> bool:
    try:
        parse_http(str(value))
    except ValueError:
        return False
    return True


def _is_registry(value: Value) -> bool:
    """Names and passwords would be seen in the list of processes."""
    try:
        parts = urlsplit(str(value))
        is_place = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        return is_place and "@" not in parts.netloc
    except ValueError:
        return False


def _are_networks(value: Value) -> bool:
    try:
        return isinstance(value, tuple) and all(map(ip_network, value))
    except ValueError:
        return False


SETTINGS: tuple[Setting, ...] = (
    works(
        "console.listener",
        Type.STRING,
        None,
        "Where a console is served, as http://host:port, by a process of its own beside the broker (barnabas console; "
        "extra console). Without a host on the loopback addresses, port 0 any free one. Without it there is none.",
        Check("http://host:port, with a port from 0 to 65535", _is_http),
        note=_OURS,
    ),
    works(
        "console.read.only",
        Type.BOOLEAN,
        False,
        "Nothing can be changed through the console.",
        note=_OURS,
    ),
    works(
        "console.password.file",
        Type.STRING,
        None,
        "A file that only its owner can read, with the password that visitors of the console must know, in one line. "
        "Needed where other machines can reach the console.",
        note=_OURS,
    ),
    works(
        "console.host.names",
        Type.LIST,
        (),
        "Names by which browsers may call the console, beside addresses and localhost.",
        note=_OURS,
    ),
    works(
        "console.proxy.addresses",
        Type.LIST,
        (),
        "Addresses or networks (10.0.0.0/8) of proxies before the console, whose X-Forwarded-For says who visits, and "
        "whose X-Forwarded-Proto, if it is https, that cookies are for encrypted ways only.",
        Check("addresses, or networks as 10.0.0.0/8", _are_networks),
        note=_OURS,
    ),
    works(
        "console.avro.schemas",
        Type.STRING,
        None,
        "A directory with the Avro schemas by which the console shows records: TOPIC-value.avsc, TOPIC-key.avsc.",
        note=_OURS,
    ),
    works(
        "console.schema.registry.url",
        Type.STRING,
        None,
        "Where the console finds Avro schemas whose ids stand in records (Confluent's REST API), as http://host:port "
        "or https://host. A name and password for it, basic.auth.user.info, stand in console.command.config.",
        Check("http://host:port or https://host, without name or password", _is_registry),
        note=_OURS,
    ),
    works(
        "console.command.config",
        Type.STRING,
        None,
        "How the console comes to this broker, by Apache Kafka's names for clients: TLS, who logs in. Needed where "
        "the broker has no listener with PLAINTEXT.",
        note=_OURS,
    ),
)
