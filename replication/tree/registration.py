"""A broker's registration at /brokers/ids/N: values ↔ JSON. Written as version 5, read from version 1 on.

    {"version":5, "host":…, "port":…, "endpoints":["LISTENER://host:port"], "rack":…, "jmx_port":-1, "timestamp":"ms",
     "listener_security_protocol_map":{"LISTENER":"PLAINTEXT"}, "features":{…}}

host and port repeat the first PLAINTEXT endpoint for clients of version 1 (null and −1 without one). Version 1 has
only them; version 2 added endpoints, 3 rack, 4 the map (before, a listener was named after its protocol), 5 features.
Source: `BrokerIdZNode` in core's `ZkData.scala` (3.9).

Features are written and read in `features.py`.
"""

from __future__ import annotations

import json
import re

from barnabas.replication.tree import paths
from barnabas.replication.tree.features import registered_features
from barnabas.replication.values.image import BrokerImage, Endpoint

_ENDPOINT = re.compile(r"^([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$")
SECURITY_PROTOCOLS = frozenset(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))


def encode_broker(broker: BrokerImage, now_ms: int) -> bytes:
    """Data of /brokers/ids/N. now_ms: wall clock, milliseconds since 1970."""
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    content: dict[str, object] = {
        "features": registered_features(),
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in broker.endpoints},
        "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in broker.endpoints],
        "jmx_port": broker.jmx_port,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        content["rack"] = broker.rack
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerImage:
    """The registration; `epoch` is the node's czxid. Raises BadNode."""
    path = paths.broker(broker_id)
    try:
        fields = json.loads(data)
        version = int(fields["version"])
        if version < 1:
            raise ValueError(f"version {version}")
        if version == 1:
            endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", str(fields["host"]), int(fields["port"])),)
        else:
            protocols = fields.get("listener_security_protocol_map") or {}
            endpoints = tuple(_endpoint(text, protocols) for text in fields["endpoints"])
        rack = fields.get("rack")
        jmx_port = int(fields.get("jmx_port", -1))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise paths.BadNode(path, f"{exc!r} in {data[:200]!r}") from exc
    return BrokerImage(broker_id, endpoints, None if rack is None else str(rack), epoch, jmx_port)


def _endpoint(text: str, protocols: dict[str, str]) -> Endpoint:
    match = _ENDPOINT.match(text)
    if match is None:
        raise ValueError(f"endpoint {text!r}")
    listener, host, port = match.groups()
    protocol = protocols.get(listener, listener)
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"security protocol {protocol!r} of listener {listener!r}")
    return Endpoint(listener, host, int(port), protocol)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
