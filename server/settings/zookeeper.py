"""Settings of the connection to ZooKeeper. `server/config/zookeeper.py` makes one value of them.

`java.security.auth.login.config` is no setting of Apache Kafka but the Java system property that it reads the login
for ZooKeeper from. Here it is a setting like the others, and KAFKA_OPTS may hold it as for a JVM.
"""

from __future__ import annotations

from barnabas.server.settings.model import (
    Check,
    Setting,
    Type,
    Value,
    at_least,
    no_effect,
    one_of,
    only,
    some_of,
    works,
)
from barnabas.server.settings.tls import STORE_TYPES, WHICH_FILE, WHICH_SUITES

LOGIN_FILE = "java.security.auth.login.config"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _is_store_type(value: Value) -> bool:
    return isinstance(value, str) and value.upper() in STORE_TYPES


_STORE_TYPE = Check(f"one of {', '.join(STORE_TYPES)}", _is_store_type)
_NO_KRAFT = "metadata do not move to KRaft here"

SETTINGS: tuple[Setting, ...] = (
    works(
        "zookeeper.connect",
        Type.STRING,
        None,
        "The ZooKeeper servers that the brokers of a cluster share, as host:port,host:port/path. Without it this "
        "broker runs alone and keeps its metadata in its data directory.",
    ),
    works(
        "zookeeper.session.timeout.ms",
        Type.INT,
        18000,
        "How long a broker may be silent to ZooKeeper before its session expires and it counts as dead.",
        at_least(1),
    ),
    works(
        "zookeeper.connection.timeout.ms",
        Type.INT,
        None,
        "How long a starting broker waits for ZooKeeper; zookeeper.session.timeout.ms if unset.",
        at_least(1),
    ),
    works(
        "zookeeper.max.in.flight.requests",
        Type.INT,
        10,
        "How many requests to ZooKeeper may be unanswered at a time.",
        at_least(1),
        note="100 at most are used",
    ),
    works(
        "zookeeper.set.acl",
        Type.BOOLEAN,
        False,
        "Whether new nodes get access lists: any client may read, only the brokers' login may write, and only that "
        f"login may read the settings of brokers and users. Needs a login ({LOGIN_FILE}) or a TLS key.",
    ),
    works(
        LOGIN_FILE,
        Type.STRING,
        None,
        "A JAAS file whose section Client names user and password for ZooKeeper (DigestLoginModule). In the "
        f"environment also as KAFKA_OPTS=-D{LOGIN_FILE}=FILE.",
        note="Java's system property of this name for Apache Kafka; Kerberos is not available",
    ),
    no_effect(
        "zookeeper.clientCnxnSocket",
        Type.STRING,
        None,
        "connections to ZooKeeper are not made by Java classes; zookeeper.ssl.client.enable alone decides about TLS",
        doc="The Java class of connections to ZooKeeper.",
    ),
    works(
        "zookeeper.ssl.client.enable",
        Type.BOOLEAN,
        False,
        "Whether connections to ZooKeeper use TLS.",
    ),
    works(
        "zookeeper.ssl.keystore.location",
        Type.STRING,
        None,
        "The file with our private key and its certificates, for servers that ask clients for one.",
    ),
    works(
        "zookeeper.ssl.keystore.password",
        Type.PASSWORD,
        None,
        "The password of a PKCS12 key store.",
        note="of a PEM file, that of the key",
    ),
    works(
        "zookeeper.ssl.keystore.type",
        Type.STRING,
        None,
        "What the key store is.",
        _STORE_TYPE,
        note=WHICH_FILE,
    ),
    works(
        "zookeeper.ssl.truststore.location",
        Type.STRING,
        None,
        "The file with the certificates that ZooKeeper's are checked against; those of the operating system if unset.",
    ),
    works(
        "zookeeper.ssl.truststore.password",
        Type.PASSWORD,
        None,
        "The password of a PKCS12 trust store.",
        note="without effect for a PEM file",
    ),
    works(
        "zookeeper.ssl.truststore.type",
        Type.STRING,
        None,
        "What the trust store is.",
        _STORE_TYPE,
        note=WHICH_FILE,
    ),
    works(
        "zookeeper.ssl.protocol",
        Type.STRING,
        "TLSv1.2",
        "The version of TLS, unless zookeeper.ssl.enabled.protocols names some.",
        one_of(*TLS_VERSIONS),
    ),
    works(
        "zookeeper.ssl.enabled.protocols",
        Type.LIST,
        None,
        "The versions of TLS to choose from.",
        some_of(*TLS_VERSIONS),
    ),
    works(
        "zookeeper.ssl.cipher.suites",
        Type.LIST,
        None,
        "The cipher suites of TLS to choose from, by IANA's names; all good ones if none is named.",
        note=WHICH_SUITES,
    ),
    works(
        "zookeeper.ssl.endpoint.identification.algorithm",
        Type.STRING,
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must name the host of the connection. Empty: it may name any.",
        Check("HTTPS, or empty", lambda value: isinstance(value, str) and value.upper() in ("HTTPS", "")),
    ),
    only(
        "zookeeper.ssl.crl.enable",
        Type.BOOLEAN,
        False,
        "Whether certificates are checked against revocation lists.",
        "certificates are not checked for revocation",
    ),
    only(
        "zookeeper.ssl.ocsp.enable",
        Type.BOOLEAN,
        False,
        "Whether certificates are checked for revocation online (OCSP).",
        "certificates are not checked for revocation",
    ),
    only(
        "zookeeper.metadata.migration.enable",
        Type.BOOLEAN,
        False,
        "Whether metadata moves from ZooKeeper to KRaft.",
        _NO_KRAFT,
    ),
    no_effect(
        "zookeeper.metadata.migration.min.batch.size",
        Type.INT,
        200,
        _NO_KRAFT,
        at_least(1),
        doc="Belongs to the move from ZooKeeper to KRaft.",
    ),
)
