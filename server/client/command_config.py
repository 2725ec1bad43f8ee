"""Reads a file for `--command-config`, as Apache Kafka's own commands take it: how to connect to a broker with TLS or
SASL.

Read are `security.protocol`, `ssl.…` (PEM and PKCS12 stores, `ssl.endpoint.identification.algorithm`),
`sasl.mechanism` (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER) and `sasl.jaas.config`; for OAUTHBEARER also what
`barnabas.server.client.tokens` names. Other keys are for other commands; what looks like one of these
is said (`client_keys`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from barnabas.server.client import client_keys
from barnabas.server.client.approach import Approach
from barnabas.server.client.tokens import NoTokens, token_source
from barnabas.server.config.jaas import JaasError, parse_module
from barnabas.server.config.properties import PropertiesError, decode_properties, parse_properties
from barnabas.server.network.peer_login import Credentials
from barnabas.server.security.sasl.client import ClientCredentials
from barnabas.server.security.tls.contexts import TlsSettings, client_context
from barnabas.server.security.tls.stores import BadStore

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Unusable(Exception):
    """The file cannot be read or used; the text says why, and holds no secret."""


def read_values(path: str) -> dict[str, str]:
    """What stands in the file. Raises Unusable."""
    try:
        data = Path(path).read_bytes()
        entries = parse_properties(decode_properties(data))
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror or error}") from None
    except PropertiesError as error:
        raise Unusable(f"{path}, {error}") from None
    if b"\0" in data or not all(each.key.isprintable() for each in entries):
        raise Unusable(f"{path} is no properties file: it must be text, a KEY=VALUE a line")
    return {each.key: each.value for each in entries}


def read_approach(path: str, warn: Callable[[str], None] = lambda text: None) -> Approach:
    """warn: gets what may be a mistake. Raises Unusable, also for what surely is one."""
    values = read_values(path)
    if client_keys.PROTOCOL not in values and (why := client_keys.missing_protocol(values)) is not None:
        raise Unusable(f"{path}: {why}")
    protocol = values.get(client_keys.PROTOCOL, "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise Unusable(f"{path}: security.protocol={protocol} is refused: it must be one of {', '.join(PROTOCOLS)}")
    for text in client_keys.warnings(values, protocol):
        warn(f"{path}: {text}")
    try:
        return Approach(
            client_context(_tls(values)) if protocol.endswith("SSL") else None,
            _credentials(values) if protocol.startswith("SASL") else None,
        )
    except BadStore as error:
        raise Unusable(f"{path}: {error.key} {error}") from None
    except (JaasError, NoTokens, _Refused) as error:
        raise Unusable(f"{path}: {error}") from None


class _Refused(Exception):
    pass


def _tls(values: Mapping[str, str]) -> TlsSettings:
    checks_names = bool(values.get("ssl.endpoint.identification.algorithm", "https"))
    stores = {key: value for key, value in values.items() if key.startswith("ssl.")}
    return TlsSettings(stores, checks_names=checks_names)


def _credentials(values: Mapping[str, str]) -> Credentials:
    mechanism = values.get("sasl.mechanism")
    if mechanism is None:
        raise _Refused(f"sasl.mechanism is missing: it must be one of {', '.join(MECHANISMS)}")
    if mechanism not in MECHANISMS:
        raise _Refused(f"sasl.mechanism={mechanism} is refused: it must be one of {', '.join(MECHANISMS)}")
    if "sasl.jaas.config" not in values:
        raise _Refused("sasl.jaas.config is missing: the login module with username and password")
    options = parse_module(values["sasl.jaas.config"]).options
    if mechanism == "OAUTHBEARER":
        return token_source(values, options, time.time)
    if "username" not in options or "password" not in options:
        raise _Refused("sasl.jaas.config must have username and password")
    by_token = options.get("tokenauth", "false").lower() == "true"
    return ClientCredentials(mechanism, options["username"], options["password"], by_token)
