"""Settings of SASL: log-ins on listeners with SASL_PLAINTEXT or SASL_SSL, and how brokers log in to each other.
Most can be set for one listener, some for one mechanism of it: `listener.name.<listener>.<mechanism>.<key>`.
"""

from __future__ import annotations

from barnabas.server.settings.model import Check, Scope, Setting, Type, Value, at_least, family, no_effect, only, works

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KERBEROS = "GSSAPI"
BETWEEN_BROKERS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Apache Kafka's class that checks signatures, as 4.x and 3.x call it."""

_KERBEROS = "Kerberos (GSSAPI) is not available"
_JAVA = "Java classes cannot be loaded"
_NO_TOKENS = "brokers do not log in with OAUTHBEARER"
_S, _P, _L, _C = Type.STRING, Type.PASSWORD, Type.LIST, Type.CLASS


def _is_list_of_mechanisms(value: Value) -> bool:
    return isinstance(value, tuple) and bool(value) and all(each in (*MECHANISMS, KERBEROS) for each in value)


def _is_between_brokers(value: Value) -> bool:
    return value in (*BETWEEN_BROKERS, KERBEROS)


def _is_validator(value: Value) -> bool:
    return value in VALIDATORS


SETTINGS: tuple[Setting, ...] = (
    works(
        "sasl.enabled.mechanisms",
        _L,
        ("GSSAPI",),
        "The mechanisms that clients may log in with on listeners with SASL.",
        Check(f"a list of {', '.join(MECHANISMS)}", _is_list_of_mechanisms),
        scope=Scope.PER_BROKER,
        note="must be set for a listener with SASL, as Apache Kafka's default, GSSAPI (Kerberos), is not available",
    ),
    works(
        "sasl.mechanism.inter.broker.protocol",
        _S,
        "GSSAPI",
        "The mechanism that brokers log in to each other with, as username and password of the login entry of this "
        "mechanism on the listener between brokers.",
        Check(f"one of {', '.join(BETWEEN_BROKERS)} ({_NO_TOKENS})", _is_between_brokers),
        note="must be set when the listener between brokers uses SASL",
    ),
    works(
        "sasl.jaas.config",
        _P,
        None,
        'The login entry of one mechanism of one listener: `PlainLoginModule required user_alice="…";` names the '
        'users of PLAIN, username="…" password="…" what this broker logs in to others with.',
        note="counts only as listener.name.<listener>.<mechanism>.sasl.jaas.config, in lower case; without it the "
        "sections <listener>.KafkaServer and KafkaServer of the file java.security.auth.login.config count",
    ),
    works(
        "sasl.server.callback.handler.class",
        _C,
        None,
        "For OAUTHBEARER the class that checks tokens. It must be set: Apache Kafka's default accepts unsigned tokens.",
        Check(f"{VALIDATORS[0]} ({_JAVA})", _is_validator),
        note="what that class does is built in, no class is loaded",
    ),
    works(
        "sasl.server.max.receive.size",
        Type.INT,
        524288,
        "The longest request of a client that has not logged in, in bytes.",
        at_least(1),
    ),
    works(
        "connections.max.reauth.ms",
        Type.LONG,
        0,
        "How long a client stays logged in before it must do so again (KIP-368). 0: without end, unless its "
        "credentials end.",
    ),
    works(
        "connection.failed.authentication.delay.ms",
        Type.INT,
        100,
        "How long after a failed log-in the error is sent, and the connection closed.",
        at_least(0),
    ),
    works(
        "sasl.oauthbearer.jwks.endpoint.url",
        _S,
        None,
        "The location of the issuer's public keys, which verify tokens' signatures: http://, https:// or file://.",
    ),
    works(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Type.LONG,
        3600000,
        "How long those keys are used before they are fetched again.",
        at_least(1),
    ),
    works(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        Type.LONG,
        100,
        "How long to wait before keys that could not be fetched are tried again; twice as long each time.",
        at_least(1),
    ),
    works(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Type.LONG,
        10000,
        "The longest time to wait before another try to fetch the keys.",
        at_least(1),
    ),
    works(
        "sasl.oauthbearer.expected.issuer",
        _S,
        None,
        "The issuer that tokens must have (their claim iss). Without it, any whose key is known.",
    ),
    works(
        "sasl.oauthbearer.expected.audience",
        _L,
        None,
        "The audiences that tokens may be for: one of these must be in the claim aud. Without it, a token that has "
        "this claim is refused.",
    ),
    works(
        "sasl.oauthbearer.clock.skew.seconds",
        Type.INT,
        30,
        "How far the clock of an issuer may differ.",
        at_least(0),
    ),
    works("sasl.oauthbearer.sub.claim.name", _S, "sub", "The claim of a token that names the user."),
    works("sasl.oauthbearer.scope.claim.name", _S, "scope", "The claim of a token that names its scopes."),
    *family(
        only,
        "Belongs to Kerberos.",
        _KERBEROS,
        (
            ("sasl.kerberos.kinit.cmd", _S, "/usr/bin/kinit"),
            ("sasl.kerberos.min.time.before.relogin", Type.LONG, 60000),
            ("sasl.kerberos.principal.to.local.rules", _L, ("DEFAULT",)),
            ("sasl.kerberos.service.name", _S, None),
            ("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05),
            ("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8),
        ),
        Scope.PER_BROKER,
    ),
    *family(
        no_effect,
        "Belongs to brokers that log in with OAUTHBEARER.",
        _NO_TOKENS,
        (
            ("sasl.login.refresh.buffer.seconds", Type.SHORT, 300),
            ("sasl.login.refresh.min.period.seconds", Type.SHORT, 60),
            ("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8),
            ("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05),
        ),
        Scope.PER_BROKER,
    ),
    *family(
        no_effect,
        "Belongs to brokers that log in with OAUTHBEARER.",
        _NO_TOKENS,
        (
            ("sasl.login.connect.timeout.ms", Type.INT, None),
            ("sasl.login.read.timeout.ms", Type.INT, None),
            ("sasl.login.retry.backoff.max.ms", Type.LONG, 10000),
            ("sasl.login.retry.backoff.ms", Type.LONG, 100),
        ),
    ),
    *family(
        only,
        "A Java class of the login.",
        _JAVA,
        (
            ("sasl.client.callback.handler.class", _C, None),
            ("sasl.login.callback.handler.class", _C, None),
            ("sasl.login.class", _C, None),
            (
                "sasl.oauthbearer.jwt.retriever.class",
                _C,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            ),
            (
                "sasl.oauthbearer.jwt.validator.class",
                _C,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            ),
        ),
    ),
    *family(
        only,
        "Belongs to brokers that log in with OAUTHBEARER.",
        _NO_TOKENS,
        (
            ("sasl.oauthbearer.token.endpoint.url", _S, None),
            ("sasl.oauthbearer.assertion.algorithm", _S, "RS256"),
            ("sasl.oauthbearer.assertion.claim.aud", _S, None),
            ("sasl.oauthbearer.assertion.claim.exp.seconds", Type.INT, 300),
            ("sasl.oauthbearer.assertion.claim.iss", _S, None),
            ("sasl.oauthbearer.assertion.claim.jti.include", Type.BOOLEAN, False),
            ("sasl.oauthbearer.assertion.claim.nbf.seconds", Type.INT, 60),
            ("sasl.oauthbearer.assertion.claim.sub", _S, None),
            ("sasl.oauthbearer.assertion.file", _S, None),
            ("sasl.oauthbearer.assertion.private.key.file", _S, None),
            ("sasl.oauthbearer.assertion.private.key.passphrase", _P, None),
            ("sasl.oauthbearer.assertion.template.file", _S, None),
            ("sasl.oauthbearer.client.credentials.client.id", _S, None),
            ("sasl.oauthbearer.client.credentials.client.secret", _P, None),
            ("sasl.oauthbearer.scope", _S, None),
        ),
    ),
)
