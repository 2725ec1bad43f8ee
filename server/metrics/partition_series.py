"""Series of the partitions on this broker and of their logs, and the sums over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.server.metrics.page import Page, escaped
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources
    from barnabas.server.partitions.partition import Partition

_UNITS = 7
"""The cost of a partition's 18 lines."""

_STATES = (
    ("kafka_cluster_partition_underreplicated", "1: led here, and a replica is not in sync."),
    ("kafka_cluster_partition_underminisr", "1: led here, with fewer in-sync replicas than min.insync.replicas."),
    ("kafka_cluster_partition_atminisr", "1: led here, with exactly min.insync.replicas in-sync replicas."),
    ("kafka_cluster_partition_replicascount", "Replicas, on the leader; 0 on others."),
    ("kafka_cluster_partition_insyncreplicascount", "In-sync replicas, on the leader; 0 on others."),
    ("kafka_cluster_partition_laststableoffsetlag", "Records below the high watermark that open transactions hide."),
    ("kafka_log_log_size", "Bytes of the partition's log on this broker."),
    ("kafka_log_log_numlogsegments", "Segments of the partition's log on this broker."),
    ("kafka_log_log_logstartoffset", "The first offset of the partition's log on this broker."),
    ("kafka_log_log_logendoffset", "The offset behind the last record of the partition's log on this broker."),
    ("barnabas_partition_high_watermark", "The offset behind the last committed record, as this broker knows it."),
)
_LED = (
    ("kafka_topic_partition_current_offset", "The high watermark, of partitions led here."),
    ("kafka_topic_partition_oldest_offset", "The log start offset, of partitions led here."),
    ("kafka_topic_partition_in_sync_replica", "In-sync replicas, of partitions led here."),
    ("kafka_topic_partition_leader", "The leader's id, of partitions led here."),
    ("kafka_topic_partition_leader_is_preferred", "1: the leader is the first replica; of partitions led here."),
    ("kafka_topic_partition_replicas", "Replicas, of partitions led here."),
    ("kafka_topic_partition_under_replicated_partition", "1: a replica is not in sync; of partitions led here."),
)


class PartitionSeries:
    """Keeps the labels of partitions from one scrape to the next."""

    def __init__(self) -> None:
        self._labels: dict[tuple[str, int], str] = {}

    def add(self, page: Page, sources: Sources, partitions: Sequence[Partition]) -> Steps[None]:
        """partitions: those on this broker, sorted; they may be gone between two turns."""
        has_series = len(partitions) <= sources.config.get_int("metrics.partitions.max")
        lists = [page.gauges(*family) for family in (*_STATES, *_LED)] if has_series else []
        states, led = lists[: len(_STATES)], lists[len(_STATES) :]
        known, self._labels = self._labels, {}
        furthest = 0
        fetches: set[int] = set()
        led_count = under_replicated = under_min = at_min = reassigning = total_size = 0
        for partition in partitions:
            yield _UNITS if has_series else 1
            log = partition.log
            state = log.state
            is_led = partition.is_leader
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            least = min(state.config.min_insync_replicas, replicas)
            is_under = is_led and in_sync < replicas
            is_under_min, is_at_min = is_led and in_sync < least, is_led and in_sync == least
            led_count += is_led
            under_replicated += is_under
            under_min += is_under_min
            at_min += is_at_min
            reassigning += is_led and bool(partition.adding_replicas)
            shares = sources.services.shares.made
            fetches.update(id(waiter) for waiter in partition.waiters if shares is None or waiter not in shares)
            if partition.leader is not None:
                for follower in partition.leader.followers.values():
                    furthest = max(furthest, state.log_end_offset - max(follower.log_end_offset, 0))
            size = log.size
            total_size += size
            if not has_series:
                continue
            key = partition.topic, partition.index
            labels = known.get(key)
            if labels is None:
                labels = f'{{topic="{escaped(key[0])}",partition="{key[1]}"}}'
            self._labels[key] = labels
            high_watermark = partition.high_watermark
            start, end = state.log_start_offset, state.log_end_offset
            values: tuple[int, ...] = (
                int(is_under),
                int(is_under_min),
                int(is_at_min),
                replicas if is_led else 0,
                in_sync,
                high_watermark - partition.last_stable_offset,
                size,
                len(state.segments),
                start,
                end,
                high_watermark,
            )
            for (name, _), lines, value in zip(_STATES, states, values, strict=True):
                lines.append(f"{name}{labels} {value}")
            if is_led:
                is_preferred = partition.replicas[:1] == (partition.leader_id,)
                values = high_watermark, start, in_sync, partition.leader_id, int(is_preferred), replicas, int(is_under)
                for (name, _), lines, value in zip(_LED, led, values, strict=True):
                    lines.append(f"{name}{labels} {value}")
        for name, text, value in (
            ("leadercount", "Partitions led here.", led_count),
            ("partitioncount", "Partitions on this broker.", len(partitions)),
            ("underreplicatedpartitions", "Partitions led here with a replica that is not in sync.", under_replicated),
            (
                "underminisrpartitioncount",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
                under_min,
            ),
            (
                "atminisrpartitioncount",
                "Partitions led here with exactly min.insync.replicas in-sync replicas.",
                at_min,
            ),
            (
                "offlinereplicacount",
                "Replicas on this broker whose log directory has failed.",
                sources.services.partitions.offline_count,
            ),
            ("reassigningpartitions", "Partitions led here that get other replicas.", reassigning),
        ):
            page.gauge(f"kafka_server_replicamanager_{name}", text, value)
        shares = sources.services.shares.made
        share_fetches = 0 if shares is None else shares.waiting_count
        purgatory = "kafka_server_delayedoperationpurgatory"
        for name in ("purgatorysize", "numdelayedoperations"):
            text = "Fetches that wait for records."
            page.gauge(f"{purgatory}_{name}", text, len(fetches), '{delayedOperation="Fetch"}')
            page.gauge(f"{purgatory}_{name}", text, share_fetches, '{delayedOperation="ShareFetch"}')
        page.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Records that the follower furthest behind lacks, of partitions led here (in Apache Kafka: followed here).",
            furthest,
            '{clientId="Replica"}',
        )
        page.gauge("barnabas_log_bytes", "Bytes of all logs on this broker.", total_size)
        page.gauge(
            "barnabas_metrics_partitions_left_out",
            "Partitions without series of their own, as there are more than metrics.partitions.max.",
            0 if has_series else len(partitions),
        )
