"""The settings `zookeeper.*` and the login file as one value for the store.

Invalid settings are rejected by name, before connecting: files that are missing or neither PEM nor PKCS12, access lists
without a login, Kerberos. A login file without a section `Client` means no login, as for Apache Kafka.
"""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path

from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.jaas import JaasError, parse_jaas
from barnabas.server.config.problems import SettingsRefused, refusal

LOGIN_FILE = "java.security.auth.login.config"
_SECTION = "Client"
_DIGEST = "DigestLoginModule"
_STORES = (
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
)
_PREFIX = "zookeeper."
_IDENTITY = "zookeeper.ssl.keystore.location"


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """How a broker with `zookeeper.connect` reaches ZooKeeper. Reads the files named. Raises SettingsRefused with
    all problems.
    """
    connect = config.get_str("zookeeper.connect")
    problems: list[str] = []
    login = tls = None
    try:
        login = _login(config)
    except SettingsRefused as error:
        problems += error.problems
    if config.get_bool("zookeeper.ssl.client.enable"):
        tls = _tls(config, problems)
    shows_certificate = tls is not None and config.get_optional_str(_IDENTITY) is not None
    set_acl = config.get_bool("zookeeper.set.acl")
    if set_acl and not problems and login is None and not shows_certificate:
        why = f"it needs a login: {LOGIN_FILE} with a section {_SECTION}, or {_IDENTITY}"
        problems.append(refusal("zookeeper.set.acl", "true", why))
    settings = None
    try:
        settings = ZooKeeperSettings(
            connect=connect,
            session_timeout_ms=config.get_int("zookeeper.session.timeout.ms"),
            connection_timeout_ms=config.get_optional_int("zookeeper.connection.timeout.ms"),
            max_in_flight=config.get_int("zookeeper.max.in.flight.requests"),
            set_acl=set_acl and not problems,
            sasl=login,
            tls=tls,
            shows_certificate=shows_certificate,
        )
    except ValueError as error:
        problems.append(refusal("zookeeper.connect", connect, str(error)))
    if settings is None or problems:
        raise SettingsRefused(problems)
    return settings


def _login(config: BrokerConfig) -> Login | None:
    file = config.get_optional_str(LOGIN_FILE)
    if file is None:
        return None
    try:
        modules = parse_jaas(_read(LOGIN_FILE, file)).get(_SECTION, ())
    except JaasError as error:
        raise SettingsRefused([refusal(LOGIN_FILE, file, f"it is no login configuration: {error}")]) from None
    if not modules:
        return None
    module = modules[0]
    if not module.name.endswith(_DIGEST):
        why = f"its section {_SECTION} uses {module.name}; allowed: org.apache.zookeeper.server.auth.{_DIGEST}"
        raise SettingsRefused([refusal(LOGIN_FILE, file, why)])
    if not module.options.get("username") or "password" not in module.options:
        raise SettingsRefused([refusal(LOGIN_FILE, file, f"its section {_SECTION} names no username and password")])
    if importlib.util.find_spec("puresasl") is None:
        why = "a login to ZooKeeper needs the package pure-sasl: pip install pure-sasl"
        raise SettingsRefused([refusal(LOGIN_FILE, file, why)])
    return Login(module.options["username"], module.options["password"])


def _tls(config: BrokerConfig, problems: list[str]) -> ssl.SSLContext | None:
    """None: the files cannot be used, and `problems` says why."""
    # TLS is loaded only if it is used.
    from barnabas.server.security.tls.contexts import TlsSettings, client_context
    from barnabas.server.security.tls.stores import BadStore, is_pem, read_identity, read_trust

    stores = {key.removeprefix(_PREFIX): config.get_optional_str(key) for key in _STORES}
    settings = TlsSettings(
        stores,
        versions=_list(config, "zookeeper.ssl.enabled.protocols") or (config.get_str("zookeeper.ssl.protocol"),),
        cipher_suites=_list(config, "zookeeper.ssl.cipher.suites"),
        checks_names=config.get_str("zookeeper.ssl.endpoint.identification.algorithm") != "",
    )

    def identity() -> None:
        # ZooKeeper's clients have one password for a store: in PEM it is the key's, if the key has one.
        if is_pem(stores, "ssl.keystore."):
            stores["ssl.key.password"] = stores.pop("ssl.keystore.password")
        read_identity(stores)

    def trust() -> None:
        if is_pem(stores, "ssl.truststore."):
            del stores["ssl.truststore.password"]
        read_trust(stores)

    bad = []
    for read in (trust, identity):
        try:
            read()
        except BadStore as error:
            bad.append(error)
    if not bad:
        try:
            return client_context(settings)
        except BadStore as error:
            bad.append(error)
    problems += [_refused(config, _PREFIX + error.key, str(error)) for error in bad]
    return None


def _refused(config: BrokerConfig, key: str, why: str) -> str:
    value = config.get_value(key)
    if value is None:
        return f"{key} {why}."
    return refusal(key, ",".join(value) if isinstance(value, tuple) else str(value), why)


def _list(config: BrokerConfig, key: str) -> tuple[str, ...]:
    return config.get_list(key) if config.get_value(key) else ()


def _read(key: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingsRefused([refusal(key, path, f"it cannot be read: {error.strerror or error}")]) from None
