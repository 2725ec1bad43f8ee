"""Rules over several settings of a draft: each is a function that checks values and reports problems.

Apache Kafka has the same rules (KafkaConfig); listeners have a module of their own (`listener_rules`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from barnabas.server.config.draft import Draft
from barnabas.server.settings import consumer_groups, share_groups, streams_groups
from barnabas.server.settings.endpoints import parse_counts, split_list

_DEFAULTS_IN_CLUSTER: Final = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}


def apply(draft: Draft) -> None:
    """All of them. Settles `broker.id`, `node.id` and the defaults that depend on other settings."""
    one_store(draft)
    broker_id(draft)
    cluster_defaults(draft)
    log_dirs(draft)
    pairs(draft)
    cleaners(draft)
    replicas_of_one_broker(draft)
    for kind in (consumer_groups, share_groups, streams_groups):
        for key, why in kind.faults(draft.values):
            draft.problem(key, why)
    if draft.values["max.connections.per.ip"] == 0 and not connection_overrides(draft):
        draft.problem("max.connections.per.ip", "0 needs max.connections.per.ip.overrides", text="0")


def is_clustered(values: Mapping[str, object]) -> bool:
    """Whether the metadata is in a store that brokers share."""
    return values.get("zookeeper.connect") is not None or values.get("metadata.store.socket") is not None


def one_store(draft: Draft) -> None:
    if draft.values["zookeeper.connect"] is not None and draft.values["metadata.store.socket"] is not None:
        draft.problem("metadata.store.socket", "it cannot be combined with zookeeper.connect")


def broker_id(draft: Draft) -> None:
    values, static = draft.values, draft.static
    key = "node.id" if "node.id" in static and "broker.id" not in static else "broker.id"
    if "broker.id" in static and "node.id" in static and values["broker.id"] != values["node.id"]:
        draft.problem("node.id", f"it must equal broker.id={static['broker.id']}")
        return
    clustered = is_clustered(values)
    generates = clustered and values["broker.id.generation.enable"] is True
    chosen = values[key] if key in static else -1 if clustered else values[key]
    assert isinstance(chosen, int)
    most = values["reserved.broker.max.id"]
    if chosen < 0 and not generates:
        why = "it must be at least 0" + (" while broker.id.generation.enable is false" if clustered else "")
        draft.problem(key, why, text=static.get(key, str(chosen)))
    elif generates and isinstance(most, int) and chosen > most:
        why = f"it must not be above reserved.broker.max.id={most} while broker.id.generation.enable is true"
        draft.problem(key, why)
    values["broker.id"] = values["node.id"] = chosen


def cluster_defaults(draft: Draft) -> None:
    """Internal topics are replicated in a cluster; a broker alone could not make them so."""
    if is_clustered(draft.values):
        for key, value in _DEFAULTS_IN_CLUSTER.items():
            if key not in draft.static:
                draft.values[key] = value


def log_dirs(draft: Draft) -> None:
    key = "log.dirs" if draft.values["log.dirs"] is not None else "log.dir"
    directories = split_list(str(draft.values[key]))
    if not directories:
        draft.problem(key, "it must name a directory")
    elif len({os.path.abspath(directory) for directory in directories}) < len(directories):
        draft.problem(key, "it must name each directory once")


def pairs(draft: Draft) -> None:
    """A minimum above its maximum."""
    for least, most in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        low, high = draft.values[least], draft.values[most]
        if isinstance(low, int) and isinstance(high, int) and low > high:
            draft.problem(least, f"it must not be above {most}={high}")


def cleaners(draft: Draft) -> None:
    key = "log.cleaner.dedupe.buffer.size"
    size, count = draft.values[key], draft.values["log.cleaner.threads"]
    if isinstance(size, int) and isinstance(count, int) and count and size // count <= 1 << 20:
        draft.problem(key, f"it must be above 1 MiB (1048576) for each of log.cleaner.threads={count}")


def replicas_of_one_broker(draft: Draft) -> None:
    """Settings that need other brokers: allowed, as in Apache Kafka, but requests would wait indefinitely."""
    if is_clustered(draft.values):
        return
    for key, what in (
        ("offsets.topic.replication.factor", "groups"),
        ("transaction.state.log.replication.factor", "transactions"),
        ("transaction.state.log.min.isr", "transactions"),
    ):
        wanted = draft.values[key]
        if isinstance(wanted, int) and wanted > 1:
            draft.notice(key, f"makes {what} wait indefinitely: this broker runs alone; set it to 1")


def connection_overrides(draft: Draft) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as limits by host."""
    return parse_counts(str(draft.values["max.connections.per.ip.overrides"]))
