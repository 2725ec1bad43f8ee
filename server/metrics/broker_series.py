"""The broker in its cluster, its coordinators' size, its cleaner and its directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.metrics.page import Page, labels
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources

RUNNING: Final = 3
_CONTROLLER: Final = "kafka_controller_kafkacontroller"


def add_cluster(page: Page, sources: Sources) -> Steps[None]:
    """The controller, and the cluster as it sees it. Brokers that are not the controller show 0, as in Apache Kafka."""
    services = sources.services
    image, is_active = services.image, services.cluster.is_active
    page.gauge("kafka_server_kafkaserver_brokerstate", "3: the broker serves.", RUNNING)
    page.gauge(f"{_CONTROLLER}_activecontrollercount", "1: this broker is the controller.", int(is_active))
    partitions = offline = imbalanced = 0
    if is_active:
        for topic in image.topics.values():
            yield 1
            partitions += len(topic.partitions)
            for partition in topic.partitions:
                if partition.leader < 0:
                    offline += 1
                elif partition.replicas and partition.leader != partition.replicas[0]:
                    imbalanced += 1
            yield len(topic.partitions) // 4
    for name, text, value in (
        ("globaltopiccount", "Topics of the cluster; 0 where this broker is not the controller.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster; 0 where this broker is not the controller.", partitions),
        (
            "offlinepartitionscount",
            "Partitions without a leader; 0 where this broker is not the controller.",
            offline,
        ),
        (
            "preferredreplicaimbalancecount",
            "Partitions that another than the preferred replica leads; 0 where this broker is not the controller.",
            imbalanced,
        ),
    ):
        page.gauge(f"{_CONTROLLER}_{name}", text, value if is_active else 0)
    page.counter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders that were elected outside their ISR, by this broker in its present term as controller.",
        services.cluster.unclean_elections,
    )
    if is_active:
        page.gauge("kafka_brokers", "Live brokers of the cluster, on its controller.", len(image.brokers))
        lines = page.gauges("kafka_broker_info", "Always 1: a live broker and its address, on the controller.")
        for broker in image.brokers.values():
            address = f"{broker.endpoints[0].host}:{broker.endpoints[0].port}" if broker.endpoints else ""
            lines.append(f"kafka_broker_info{labels(id=broker.id, address=address)} 1")
        lines = page.gauges("kafka_topic_partitions", "Partitions of a topic, on the controller.")
        if len(image.topics) <= sources.config.get_int("metrics.partitions.max"):
            for name in image.topic_names:
                yield 1
                topic_image = image.topics.get(name)
                if topic_image is not None:
                    lines.append(f"kafka_topic_partitions{labels(topic=name)} {len(topic_image.partitions)}")


def add_security(page: Page, sources: Sources) -> None:
    """Log-ins by listener, requests that were denied, quotas."""
    prefix = "kafka_server_socket_server_metrics"
    logins = {name: (one.counts.passed, one.counts.failed) for name, one in sources.admission.logins.items()}
    failures = sources.reactor.tls_failures
    listeners = sorted({*(address.name for address in sources.config.listeners), *logins, *failures})
    for name, text, at in (
        ("successful_authentication", "Log-ins, and renewals of sessions, by listener.", 0),
        ("failed_authentication", "Log-ins that were refused, and TLS handshakes that failed, by listener.", 1),
    ):
        for listener in listeners:
            value = logins.get(listener, (0, 0))[at] + (failures[listener] if at else 0)
            braces = labels(listener=listener, networkProcessor="0")
            page.counter(f"{prefix}_{name}", text, value, braces)
    authorizer = sources.services.authorizer
    lines = page.counters(
        "barnabas_authorization_denials", "What requests were denied, by operation and type of resource."
    )
    if authorizer is not None:
        for (operation, kind), count in sorted(authorizer.denials.items()):
            braces = labels(operation=operation.label, resource=kind.label)
            lines.append(f"barnabas_authorization_denials_total{braces} {count}")
    throttle = sources.services.throttle
    for name, text, counts, unit in (
        (
            "barnabas_throttled_requests",
            "Requests whose client was held back for its quota, by API.",
            throttle.delays,
            1,
        ),
        ("barnabas_throttle_seconds", "For how long clients were held back, by API.", throttle.delays_ms, 1000),
    ):
        lines = page.counters(name, text)
        for api, value in sorted(counts.items()):
            lines.append(f"{name}_total{labels(request=_shown(api))} {value / unit if unit > 1 else value}")


def _shown(api: str) -> str:
    return "".join(word.capitalize() for word in api.split("_"))


def add_cleaner(page: Page, sources: Sources) -> None:
    """How far the cleaner is."""
    cleaner = sources.cleaner()
    if cleaner is None:
        return
    progress = cleaner.progress
    manager = "kafka_log_logcleanermanager"
    page.gauge(
        f"{manager}_max_dirty_percent",
        "The largest share of a log that is not compacted, when cleaners last looked; from 0 to 100.",
        round(100 * progress.max_dirty_ratio, 2),
    )
    if progress.last_look_at is not None:
        page.gauge(
            f"{manager}_time_since_last_run_ms",
            "Since cleaners last looked.",
            round(1000 * (trio.current_time() - progress.last_look_at)),
        )
    page.gauge(
        f"{manager}_uncleanable_partitions_count",
        "Logs that are not compacted until the broker restarts, as their records cannot be read.",
        cleaner.uncleanable_count,
    )
    page.gauge(
        "kafka_log_logcleaner_max_clean_time_secs", "Of the last compaction of a log.", round(progress.last_run_s, 3)
    )
    page.gauge(
        "kafka_log_logcleaner_max_buffer_utilization_percent",
        "How full the map of keys was in the last compaction; from 0 to 100.",
        round(100 * progress.last_map_fill, 2),
    )
    page.gauge("barnabas_cleaner_busy", "Logs that are being compacted.", cleaner.busy_count)
    for name, text, value in (
        ("runs", "Compactions of a log that went well.", progress.runs),
        ("failures", "Compactions of a log that failed.", progress.failures),
        ("read_bytes", "Bytes of logs before they were compacted.", progress.bytes_read),
        ("written_bytes", "Bytes that compaction has written.", progress.bytes_written),
        ("records_read", "Records before compaction.", progress.records_read),
        ("records_kept", "Records that compaction has kept.", progress.records_kept),
    ):
        page.counter(f"barnabas_cleaner_{name}", text, value)


def add_directories(page: Page, sources: Sources) -> Steps[None]:
    """Log directories."""
    dirs = sources.services.partitions.log_dirs
    lines = page.gauges("kafka_log_logmanager_logdirectoryoffline", "1: the log directory has failed.")
    for each in dirs.dirs:
        lines.append(
            f"kafka_log_logmanager_logdirectoryoffline{labels(logDirectory=each.path)} {int(each.failure is not None)}"
        )
    page.gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed.", len(dirs.offline))
    yield 1
