"""The settings of TLS as one listener sees them."""

from __future__ import annotations

from typing import Final

from barnabas.server.config.values import ListenerConfig
from barnabas.server.security.tls.contexts import TlsSettings
from barnabas.server.security.tls.mapping import PrincipalMapping

PROTOCOLS: Final = ("SSL", "SASL_SSL")
"""Those of listeners with TLS."""

_CLIENT_AUTH: Final = "ssl.client.auth"
_STORES: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


def tls_settings(config: ListenerConfig, protocol: str) -> TlsSettings:
    """Those of a listener. On one with SASL_SSL a client shows a certificate only if that is asked for this listener
    itself (KIP-684): it says who it is by other means.
    """
    asks = protocol == "SSL" or _CLIENT_AUTH in config.own
    return TlsSettings(
        {key: config.get_optional_str(key) for key in _STORES},
        versions=config.get_list("ssl.enabled.protocols"),
        cipher_suites=config.get_list("ssl.cipher.suites"),
        client_auth=config.get_str(_CLIENT_AUTH) if asks else "none",
        checks_names=bool(config.get_str("ssl.endpoint.identification.algorithm")),
    )


def principal_mapping(config: ListenerConfig) -> PrincipalMapping:
    """What makes names of certificates. Raises ValueError with what is wrong with the rules."""
    return PrincipalMapping(config.get_str("ssl.principal.mapping.rules"))
