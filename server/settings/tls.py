"""Settings of TLS: what listeners with SSL or SASL_SSL show and ask for, and what this broker shows to others. Each can
be set for one listener: `listener.name.<listener>.<key>`.
"""

from __future__ import annotations

from barnabas.server.settings.model import Check, Scope, Setting, Type, Value, family, no_effect, one_of, only, works

VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")

_JAVA = "OpenSSL has nothing like it"
_S, _P = Type.STRING, Type.PASSWORD


def _is_list_of_versions(value: Value) -> bool:
    return isinstance(value, tuple) and bool(value) and all(each in VERSIONS for each in value)


def _store(name: str, kind: Type, default: str | None, doc: str, check: Check | None = None, note: str = "") -> Setting:
    return works(name, kind, default, doc, check, scope=Scope.PER_BROKER, note=note)


WHICH_FILE = "a file's first bytes decide between PEM and PKCS12, whatever is set; JKS is refused, keytool converts it"
WHICH_SUITES = "of those for TLS 1.3 all are used while one is named, as Python cannot choose among them"

SETTINGS: tuple[Setting, ...] = (
    works(
        "ssl.client.auth",
        _S,
        "none",
        "Whether clients show a certificate: they must (required), may (requested), or are not asked (none). For a "
        "listener with SASL_SSL it counts only when it is set for that listener.",
        one_of("required", "requested", "none"),
        scope=Scope.PER_BROKER,
    ),
    works(
        "ssl.principal.mapping.rules",
        _S,
        "DEFAULT",
        "Rules that turn the subject of a client's certificate into the name of its user.",
        note="patterns are Python's regular expressions",
    ),
    works(
        "ssl.enabled.protocols",
        Type.LIST,
        VERSIONS,
        "The versions of TLS that are spoken.",
        Check(f"a list of {', '.join(VERSIONS)}", _is_list_of_versions),
        scope=Scope.PER_BROKER,
    ),
    works(
        "ssl.cipher.suites",
        Type.LIST,
        (),
        "The cipher suites that are used, by IANA's names; all good ones if none is named.",
        scope=Scope.PER_BROKER,
        note=WHICH_SUITES,
    ),
    works(
        "ssl.endpoint.identification.algorithm",
        _S,
        "https",
        "Whether another broker's certificate must name the address that it is connected at (https), or not (empty).",
        one_of("https", "HTTPS", ""),
        scope=Scope.PER_BROKER,
    ),
    _store(
        "ssl.keystore.type",
        _S,
        "JKS",
        "What the key store is; PEM if it stands in settings.",
        one_of(*STORE_TYPES),
        WHICH_FILE,
    ),
    _store("ssl.keystore.location", _S, None, "The file with this broker's certificate, those above it, and the key."),
    _store("ssl.keystore.password", _P, None, "The password of a PKCS12 key store."),
    _store(
        "ssl.keystore.certificate.chain", _P, None, "The certificate and those above it, in PEM, instead of a file."
    ),
    _store("ssl.keystore.key", _P, None, "The private key, in PEM (PKCS#8), instead of a file."),
    _store("ssl.key.password", _P, None, "The password of a private key in PEM."),
    _store(
        "ssl.truststore.type",
        _S,
        "JKS",
        "What the trust store is; PEM if it stands in a setting.",
        one_of(*STORE_TYPES),
        WHICH_FILE,
    ),
    _store(
        "ssl.truststore.location",
        _S,
        None,
        "The file with the certificates of the authorities that are trusted; those of the system if none is set.",
    ),
    _store("ssl.truststore.password", _P, None, "The password of a PKCS12 trust store."),
    _store("ssl.truststore.certificates", _P, None, "The certificates that are trusted, in PEM, instead of a file."),
    works(
        "ssl.allow.dn.changes",
        Type.BOOLEAN,
        False,
        "Whether a key store that is replaced while the broker runs may hold a certificate of another subject.",
    ),
    works(
        "ssl.allow.san.changes",
        Type.BOOLEAN,
        False,
        "Whether a key store that is replaced while the broker runs may hold a certificate that lacks an alternative "
        "name of the former one.",
    ),
    only(
        "ssl.engine.factory.class",
        Type.CLASS,
        None,
        "A Java class that makes TLS engines.",
        "Java classes cannot be loaded",
        scope=Scope.PER_BROKER,
    ),
    *family(
        no_effect,
        "Belongs to Java's TLS.",
        _JAVA,
        (
            ("ssl.protocol", _S, "TLSv1.3"),
            ("ssl.provider", _S, None),
            ("ssl.keymanager.algorithm", _S, "SunX509"),
            ("ssl.trustmanager.algorithm", _S, "PKIX"),
            ("ssl.secure.random.implementation", _S, None),
        ),
        Scope.PER_BROKER,
    ),
)
