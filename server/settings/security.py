"""Settings of authorization and delegation tokens. What is not here is refused by name: a broker that looks protected
and is not would be worse than one that does not start. SASL is in `sasl`, TLS in `tls`.
"""

from __future__ import annotations

from barnabas.server.settings.model import Check, Scope, Setting, Type, at_least, family, no_effect, only, works

_S, _P, _L, _C = Type.STRING, Type.PASSWORD, Type.LIST, Type.CLASS

AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Apache Kafka's authorizers, for clusters with ZooKeeper and without."""

_PRINCIPALS = Check(
    "principals like User:alice, separated by semicolons",
    lambda value: all(":" in part for part in str(value or "").split(";") if part.strip()),
)

SETTINGS: tuple[Setting, ...] = (
    works(
        "authorizer.class.name",
        Type.STRING,
        "",
        "Turns on access control lists (ACLs); both class names stand for the same. Empty: every client may do "
        "everything.",
        Check("empty, or " + " or ".join(AUTHORIZERS), lambda value: value in ("", *AUTHORIZERS)),
    ),
    works(
        "super.users",
        Type.STRING,
        None,
        "Principals that may do everything, separated by semicolons: User:alice;User:CN=broker,O=Example. Other brokers"
        " of the cluster should be among them.",
        _PRINCIPALS,
    ),
    works(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        False,
        "Whether every client may do everything to resources that have no ACL.",
    ),
    only(
        "principal.builder.class",
        Type.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The class that names the user of a connection.",
        "Java classes cannot be loaded",
        scope=Scope.PER_BROKER,
    ),
    only(
        "security.providers",
        _S,
        None,
        "Java classes that provide security algorithms.",
        "Java classes cannot be loaded",
    ),
    only(
        "client.quota.callback.class",
        _C,
        None,
        "A Java class that sets the quotas of clients.",
        "Java classes cannot be loaded",
    ),
    works(
        "delegation.token.secret.key",
        _P,
        None,
        "The key that the secrets of delegation tokens are made with; the same on all brokers. Not set, or empty:"
        " there are no tokens.",
    ),
    works(
        "delegation.token.master.key",
        _P,
        None,
        "The older name of delegation.token.secret.key, which comes first.",
    ),
    works(
        "delegation.token.max.lifetime.ms",
        Type.LONG,
        604800000,
        "How long after it was made a delegation token ends at the latest, however often it is renewed.",
        at_least(1),
    ),
    works(
        "delegation.token.expiry.time.ms",
        Type.LONG,
        86400000,
        "How long after it was made or renewed a delegation token ends.",
        at_least(1),
    ),
    works(
        "delegation.token.expiry.check.interval.ms",
        Type.LONG,
        3600000,
        "How often the controller removes expired delegation tokens; they permit no log-in before that either.",
        at_least(1),
    ),
    *family(
        no_effect,
        "Belongs to the encryption of passwords that are set while the broker runs.",
        "passwords cannot be set while the broker runs",
        (
            ("password.encoder.secret", _P, None),
            ("password.encoder.old.secret", _P, None),
            ("password.encoder.keyfactory.algorithm", _S, None),
            ("password.encoder.cipher.algorithm", _S, "AES/CBC/PKCS5Padding"),
            ("password.encoder.key.length", Type.INT, 128, at_least(8)),
            ("password.encoder.iterations", Type.INT, 4096, at_least(1024)),
        ),
    ),
)
