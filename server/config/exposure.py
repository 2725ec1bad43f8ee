"""Warnings about what a settings file exposes, for `barnabas config --check`.

All of it is allowed, in Apache Kafka too, and right in some places: on one's own machine, in a closed network. So
nothing is rejected. Checked are the settings and the modes of files that hold secrets.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.sasl import LOGIN_FILE
from barnabas.server.config.values import ListenerConfig
from barnabas.server.settings.endpoints import ListenAddress
from barnabas.server.settings.listener_keys import row_of

_ANONYMOUS: Final = "User:ANONYMOUS"
_KEYSTORE: Final = "ssl.keystore.location"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_IN_CLEAR: Final = {"PLAIN": "passwords", "OAUTHBEARER": "tokens"}
"""Secrets that an eavesdropper can reuse."""


def exposures(config: BrokerConfig, file: Path) -> Iterator[str]:
    """Warnings about `config`, which was read from `file`."""
    has_authorizer = bool(config.get_str("authorizer.class.name"))
    for address in config.listeners:
        seen = config.for_listener(address.name)
        yield from _carried_in_clear(address, seen)
        if has_authorizer:
            yield from _anonymous(address, seen)
        else:
            yield from _open(address)
        if config.is_clustered and address.name == config.inter_broker_listener:
            yield from _strangers_as_brokers(address, seen)
    if has_authorizer:
        yield from _too_generous(config)
    yield from _readable_by_others(config, file)


def _carried_in_clear(address: ListenAddress, seen: ListenerConfig) -> Iterator[str]:
    if not address.protocol.startswith("SASL_"):
        return
    for mechanism in seen.get_list("sasl.enabled.mechanisms"):
        what = _IN_CLEAR.get(mechanism)
        if what and address.protocol == "SASL_PLAINTEXT":
            yield f"listener {address}: {mechanism} over SASL_PLAINTEXT sends {what} in clear text; SASL_SSL does not"
        if mechanism == "OAUTHBEARER":
            url = seen.for_mechanism(mechanism).get_optional_str(_JWKS) or ""
            if url.startswith("http://") and not _is_loopback(urlsplit(url).hostname or ""):
                yield f"{_JWKS}={url} is read without TLS: an attacker on the network could decide who may log in"


def _open(address: ListenAddress) -> Iterator[str]:
    """Without an authorizer."""
    if _is_loopback(address.host):
        return
    who = "every user that logs in there" if address.protocol.startswith("SASL_") else "every client that reaches it"
    yield f"listener {address} is open to other machines; without authorizer.class.name {who} may do everything"


def _anonymous(address: ListenAddress, seen: ListenerConfig) -> Iterator[str]:
    """With an authorizer: client certificates that are optional."""
    if address.protocol != "SSL":
        return
    match seen.get_str("ssl.client.auth"):
        case "none":
            yield f"listener {address}: with ssl.client.auth=none every client is {_ANONYMOUS} to the authorizer"
        case "requested":
            yield (
                f"listener {address}: with ssl.client.auth=requested a client without a certificate is {_ANONYMOUS} to "
                "the authorizer"
            )


def _too_generous(config: BrokerConfig) -> Iterator[str]:
    """With an authorizer."""
    key = "allow.everyone.if.no.acl.found"
    if config.get_bool(key):
        yield f"{key}=true lets every client do everything to resources without an ACL, such as new topics"
    supers = [part.strip() for part in (config.get_optional_str("super.users") or "").split(";")]
    if _ANONYMOUS in supers:
        for address in config.listeners:
            if _admits_anonymous_clients(address, config.for_listener(address.name)):
                yield f"super.users has {_ANONYMOUS}: unauthenticated clients of listener {address} may do everything"


def _admits_anonymous_clients(address: ListenAddress, seen: ListenerConfig) -> bool:
    return address.protocol == "PLAINTEXT" or (
        address.protocol == "SSL" and seen.get_str("ssl.client.auth") != "required"
    )


def _strangers_as_brokers(address: ListenAddress, seen: ListenerConfig) -> Iterator[str]:
    """Brokers that do not verify the host name of the broker they connect to."""
    key = "ssl.endpoint.identification.algorithm"
    if address.protocol in ("SSL", "SASL_SSL") and not seen.get_str(key):
        yield f"{key} is empty: brokers do not verify the host names of brokers at listener {address.name}"


def _readable_by_others(config: BrokerConfig, file: Path) -> Iterator[str]:
    keys = {_KEYSTORE: None} | {f"listener.name.{each.name.lower()}.{_KEYSTORE}": None for each in config.listeners}
    for key in keys:
        location = config.static.get(key, "")
        if location and _others_read(Path(location)):
            yield f"{key}={location}: every user of this machine can read the private key in it"
    login = config.static.get(LOGIN_FILE, "")
    if login and _others_read(Path(login)):
        yield f"{LOGIN_FILE}={login}: every user of this machine can read the passwords in it"
    secrets = sorted(key for key, text in config.static.items() if text and (row := row_of(key)) and row.sensitive)
    if secrets and _others_read(file):
        yield f"every user of this machine can read {file}, which holds {', '.join(secrets)}"


def _others_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _is_loopback(host: str) -> bool:
    return host.lower() in ("localhost", "::1") or host.startswith("127.")
