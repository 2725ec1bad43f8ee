"""The settings `zookeeper.*` and the login file as one value for the store.

What cannot be used is refused by name, before a connection is tried: files that are missing or not PEM, access lists
without a login, Kerberos. A login file without a section `Client` means no login, as for Apache Kafka.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings, ZooKeeperTls
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.jaas import JaasError, parse_jaas
from barnabas.server.config.problems import SettingsRefused, refusal

LOGIN_FILE = "java.security.auth.login.config"
_SECTION = "Client"
_DIGEST = "DigestLoginModule"
_JAVA_STORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore")


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """How a broker with `zookeeper.connect` reaches ZooKeeper. Reads the files named. Raises SettingsRefused, for all
    that is wrong.
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
    set_acl = config.get_bool("zookeeper.set.acl")
    if set_acl and not problems and login is None and (tls is None or tls.identity is None):
        why = f"it needs a login: {LOGIN_FILE} with a section {_SECTION}, or zookeeper.ssl.keystore.location"
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


def _tls(config: BrokerConfig, problems: list[str]) -> ZooKeeperTls:
    """What is wrong with the files is added to `problems`."""
    files: list[str | None] = []
    for key, content in (
        ("zookeeper.ssl.truststore.location", "CERTIFICATE"),
        ("zookeeper.ssl.keystore.location", "PRIVATE KEY"),
    ):
        try:
            files.append(_pem(config, key, content))
        except SettingsRefused as error:
            problems += error.problems
            files.append(None)
    trusted, identity = files
    named = config.get_value("zookeeper.ssl.enabled.protocols")
    versions = (
        config.get_list("zookeeper.ssl.enabled.protocols") if named else (config.get_str("zookeeper.ssl.protocol"),)
    )
    # Only their form was looked at, when the settings were read.
    for key in ("zookeeper.ssl.keystore.type", "zookeeper.ssl.truststore.type"):
        assert (config.get_optional_str(key) or "PEM").upper() == "PEM"
    return ZooKeeperTls(
        trusted=trusted,
        identity=identity,
        password=config.get_optional_str("zookeeper.ssl.keystore.password"),
        versions=versions,
        check_hostname=config.get_str("zookeeper.ssl.endpoint.identification.algorithm") != "",
    )


def _pem(config: BrokerConfig, key: str, content: str) -> str | None:
    """The path in setting `key`, if there is one and its file holds `content` in PEM format."""
    path = config.get_optional_str(key)
    if path is None:
        return None
    if Path(path).suffix.lower() in _JAVA_STORES or f"{content}-----" not in _read(key, path):
        why = f"it holds no {content} in PEM format; Java key stores cannot be read here (keytool and openssl convert)"
        raise SettingsRefused([refusal(key, path, why)])
    return path


def _read(key: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingsRefused([refusal(key, path, f"it cannot be read: {error.strerror or error}")]) from None
