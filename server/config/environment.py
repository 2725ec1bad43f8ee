"""Settings from the environment, as Kafka's Docker images map them: `KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`.

`_` stands for `.`, `__` for `-`, `___` for `_`; upper case for lower. `KAFKA_CFG_…` (another image's spelling) means
the same. Ignored, as they are no settings: what configures a JVM or its logging, what Kubernetes sets for a service
called kafka, and topics to create (`barnabas.server.broker.first_topics`). Of KAFKA_OPTS, a JVM's arguments, only the
one that names the login file for ZooKeeper is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from barnabas.server.settings.zookeeper import LOGIN_FILE

PREFIX = "KAFKA_"
_LOGIN_FILE = f"-D{LOGIN_FILE}="
_NOT_SETTINGS = re.compile(
    "KAFKA_(?:"
    "HEAP_OPTS|OPTS|JMX_.*|JVM_.*|GC_.*|LOG4J.*|TOOLS_LOG4J.*|DEBUG|VERSION|SCALA_VERSION|HOME|DIR"
    "|SERVICE_.*|PORT|PORT_.*"
    "|CREATE_TOPICS|CREATE_TOPICS_SEPARATOR"
    ")"
)
_SEPARATORS = {"_": ".", "__": "-", "___": "_"}


def key_of(variable: str) -> str:
    """`KAFKA_LOG_RETENTION_MS` → `log.retention.ms`."""
    name = variable.removeprefix(PREFIX).removeprefix("CFG_").lower()
    return re.sub("_{1,3}", lambda match: _SEPARATORS[match[0]], name)


def settings_from(environ: Mapping[str, str], known: Iterable[str]) -> list[tuple[str, str, str]]:
    """(key, value, variable) of every KAFKA_* variable that is meant as a setting, by name of the variable.

    `known` are keys whose own capitals are restored (`zookeeper.clientCnxnSocket`).
    """
    spelled = {name.lower(): name for name in known}
    found = []
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and not _NOT_SETTINGS.fullmatch(variable):
            key = key_of(variable)
            found.append((spelled.get(key, key), environ[variable], variable))
    for argument in environ.get("KAFKA_OPTS", "").split():
        if argument.startswith(_LOGIN_FILE):
            found.append((LOGIN_FILE, argument.removeprefix(_LOGIN_FILE).strip("'\""), "KAFKA_OPTS"))
    return found
