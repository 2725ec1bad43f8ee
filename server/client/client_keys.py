"""What Apache Kafka 4.3.1's clients and brokers call the settings of security, and what is odd about a client's file: a
name that is misspelt would let it come without TLS or a log-in, unheard.

Files of stock clients have many other keys, which are none of our business: only those that look like these are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_NAMES: Final = {
    "sasl": """
        client.callback.handler.class enabled.mechanisms jaas.config mechanism
        mechanism.controller.protocol mechanism.inter.broker.protocol
        server.callback.handler.class server.max.receive.size
    """,
    "sasl.kerberos": """
        kinit.cmd min.time.before.relogin principal.to.local.rules service.name ticket.renew.jitter
        ticket.renew.window.factor
    """,
    "sasl.login": """
        callback.handler.class class connect.timeout.ms read.timeout.ms refresh.buffer.seconds
        refresh.min.period.seconds refresh.window.factor refresh.window.jitter retry.backoff.max.ms
        retry.backoff.ms
    """,
    "sasl.oauthbearer": """
        assertion.algorithm assertion.claim.aud assertion.claim.exp.seconds assertion.claim.iss
        assertion.claim.jti.include assertion.claim.nbf.seconds assertion.claim.sub assertion.file
        assertion.private.key.file assertion.private.key.passphrase assertion.template.file
        client.credentials.client.id client.credentials.client.secret clock.skew.seconds expected.audience
        expected.issuer header.urlencode jwks.endpoint.refresh.ms jwks.endpoint.retry.backoff.max.ms
        jwks.endpoint.retry.backoff.ms jwks.endpoint.url jwt.retriever.class jwt.validator.class scope
        scope.claim.name sub.claim.name token.endpoint.url
    """,
    "security": """
        inter.broker.protocol protocol providers
    """,
    "ssl": """
        allow.dn.changes allow.san.changes cipher.suites client.auth enabled.protocols
        endpoint.identification.algorithm engine.factory.class key.password keymanager.algorithm
        principal.mapping.rules protocol provider secure.random.implementation trustmanager.algorithm
    """,
    "ssl.keystore": """
        certificate.chain key location password type
    """,
    "ssl.truststore": """
        certificates location password type
    """,
}
NAMES: Final = frozenset(f"{prefix}.{name}" for prefix, names in _NAMES.items() for name in names.split())
PROTOCOL: Final = "security.protocol"
_NEAR: Final = 0.9
_LOG_IN: Final = ("sasl.jaas.config",)
_TLS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.key",
)


def meant_by(key: str) -> str | None:
    """The name that a key is nearly; None: none, or the key is one itself."""
    if key in NAMES:
        return None
    from difflib import get_close_matches  # rarely needed, slow to load

    close = get_close_matches(key.lower(), NAMES, n=1, cutoff=_NEAR)
    return close[0] if close else None


def missing_protocol(values: Mapping[str, str]) -> str | None:
    """Why a file without security.protocol surely wants one."""
    for key in values:
        if meant_by(key) == PROTOCOL:
            return f"{key} is unknown, and {PROTOCOL} is missing: is that meant?"
    for keys, protocols in ((_LOG_IN, "SASL_SSL or SASL_PLAINTEXT"), (_TLS, "SSL or SASL_SSL")):
        for key in keys:
            if values.get(key):
                return f"{key} needs {PROTOCOL}={protocols}, and {PROTOCOL} is missing"
    return None


def warnings(values: Mapping[str, str], protocol: str) -> Iterator[str]:
    """What has no effect, though whoever wrote the file may think so. protocol: that of the file."""
    for key in values:
        meant = meant_by(key)
        if meant is not None:
            yield f"{key} is unknown and is ignored (is {meant} meant?)"
        elif key.startswith(("ssl.", "sasl.")) and key not in NAMES:
            yield f"{key} is unknown and is ignored"
    unused = (() if protocol.startswith("SASL") else _LOG_IN, () if protocol.endswith("SSL") else _TLS)
    for key in (*unused[0], *unused[1]):
        if values.get(key):
            yield f"{key} has no effect with {PROTOCOL}={protocol}"
