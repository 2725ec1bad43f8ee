"""The rows of the benchmark, in the order in which they are printed. Each is measured by itself: none needs another.

A row's headline is what its lines in the table show; everything else that a measure returns is in the JSON. Its name
stays, or results of before cannot be merged with new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from compat_tests.bench.loads.values import MIXED, ONE_KB, SMALL, Shape
from compat_tests.bench.measures import cluster, coordinators, latency, records, requests, start, storage
from compat_tests.bench.measures.records import LARGE_BATCHES

OWN = ""
"""The place of a measure that starts brokers of its own: it gets a side instead of a subject."""


@dataclass(frozen=True)
class Quantity:
    """Something that a measure returns: its name there, its unit, and whether more of it is better."""

    name: str
    unit: str
    more_is_better: bool = False


MB_PER_S = Quantity("mb_per_s", "MB/s", True)
PER_S = Quantity("per_s", "1/s", True)
P50 = Quantity("p50_ms", "p50, ms")
P99 = Quantity("p99_ms", "p99, ms")
P999 = Quantity("p999_ms", "p99.9, ms")
STABLE = Quantity("stable_s", "s until stable")
LEFT = Quantity("left_s", "s until stable again, one left")
FIRST_ANSWER = Quantity("first_answer_s", "s to the first answer")
MEMORY = Quantity("resident_mb", "MB resident")
WRITTEN = Quantity("written_s", "s until created and written to")
RESTARTED = Quantity("restarted_s", "s to restart")
ALL_LED = Quantity("all_led_s", "s until all partitions answer")
SILENT = Quantity("silent_max_s", "longest silence, s")


@dataclass(frozen=True)
class Row:
    """`place`: of which brokers (measures.places), or OWN. `warms`: whether a first round is measured and thrown away,
    so that both JVMs have compiled what the row needs.
    """

    section: str
    name: str
    place: str
    measure: Callable[..., dict[str, Any]]
    headline: Sequence[Quantity]
    warms: bool = True

    def chosen(self, words: Sequence[str]) -> bool:
        """Whether one of the words is its section or in its name, or there are none."""
        section, name = self.section.lower(), self.name.lower()
        return not words or any(word == section or word in name for word in map(str.lower, words))


RECORDS, REQUESTS, COORDINATORS, GROUPS, LATENCY, STORAGE, START, TLS, ACL, THREE = (
    "throughput",
    "small requests",
    "transactions",
    "groups",
    "end to end",
    "storage",
    "start and memory",
    "TLS",
    "ACLs",
    "three replicas",
)


def _produce(
    name: str, shape: Shape, part: float, *settings: str, place: str = "plain", section: str = RECORDS, **more: int
) -> Row:
    measure = partial(records.java_produce, shape=shape, part=part, settings=settings, **more)
    return Row(section, f"Java produce, {name}", place, measure, (MB_PER_S,))


def _row(
    section: str,
    name: str,
    measure: Callable[..., Any],
    *headline: Quantity,
    place: str = "plain",
    warms: bool = True,
) -> Row:
    return Row(section, name, place, measure, headline, warms)


def _own(section: str, name: str, measure: Callable[..., Any], *headline: Quantity) -> Row:
    return Row(section, name, OWN, measure, headline, warms=False)


def _transactions(client: str) -> list[Row]:
    measure = partial(coordinators.transactions, client=client)
    what = f"{client}, transactions of 10 records"
    return [
        _row(COORDINATORS, f"{what}, 1 partition", partial(measure, partitions=1), PER_S),
        _row(COORDINATORS, f"{what}, 6 partitions", partial(measure, partitions=6), PER_S),
        _row(COORDINATORS, f"{what} and an offset", partial(measure, partitions=1, offsets=True), PER_S),
    ]


def _stable(kind: str, title: str) -> Row:
    return _row(GROUPS, f"100 members, {title}", partial(coordinators.stable, kind=kind), STABLE, LEFT)


ROWS: tuple[Row, ...] = (
    _produce("1 partition, 1 KB", ONE_KB, 0.8),
    _produce("1 partition, 500-1,500 B", MIXED, 0.8),
    _produce("1 partition, 60-140 B", SMALL, 0.4),
    _produce("6 partitions, 128 KB batches, 1 KB", ONE_KB, 2.5, *LARGE_BATCHES, partitions=6),
    _produce("6 partitions, 128 KB batches, 500-1,500 B", MIXED, 2.5, *LARGE_BATCHES, partitions=6),
    _produce("6 partitions, 128 KB batches, 60-140 B", SMALL, 0.8, *LARGE_BATCHES, partitions=6),
    _produce("100 partitions, 1,000 keys, 500-1,500 B", MIXED, 0.8, partitions=100, keys=1000),
    _produce("1 partition, lz4, 500-1,500 B", MIXED, 0.8, "compression.type=lz4"),
    _produce("1 partition, zstd, 500-1,500 B", MIXED, 0.8, "compression.type=zstd"),
    _row(RECORDS, "Java consume, 1 partition, hot", records.java_consume, MB_PER_S),
    _row(RECORDS, "Java consume, 6 partitions, hot", partial(records.java_consume, partitions=6), MB_PER_S),
    _row(RECORDS, "Java consume, 1 partition, catching up", records.java_catch_up, MB_PER_S),
    _row(RECORDS, "librdkafka produce, 1 partition, 500-1,500 B", records.librdkafka_produce, MB_PER_S),
    _row(RECORDS, "librdkafka consume, 1 partition, hot", records.librdkafka_consume, MB_PER_S),
    _row(RECORDS, "librdkafka consume, 1 partition, catching up", records.librdkafka_catch_up, MB_PER_S),
    _row(REQUESTS, "Produce v13, one record", partial(requests.produce, by_id=True), PER_S, P99),
    _row(REQUESTS, "Produce v7, one record", partial(requests.produce, by_id=False), PER_S, P99),
    _row(REQUESTS, "Fetch v16, 1 KB at the log's end", requests.fetch, PER_S, P99),
    _row(
        REQUESTS,
        "OffsetCommit v9, one group",
        partial(requests.commit, partitions=1, one_group=True),
        *(PER_S, P99),
    ),
    _row(
        REQUESTS,
        "OffsetCommit v9, 64 groups",
        partial(requests.commit, partitions=1, one_group=False),
        *(PER_S, P99),
    ),
    _row(
        REQUESTS,
        "OffsetCommit v9, 64 groups, 100 partitions each",
        partial(requests.commit, partitions=100, one_group=False),
        *(PER_S, P99),
    ),
    _row(
        REQUESTS,
        "Produce v13, one record, four local brokers",
        partial(requests.produce, by_id=True, partitions=4),
        *(PER_S, P99),
        place="four",
    ),
    _row(GROUPS, "Java commitSync, 1 partition", partial(coordinators.java_commits, partitions=1), PER_S),
    _row(GROUPS, "Java commitSync, 100 partitions", partial(coordinators.java_commits, partitions=100), PER_S),
    _row(GROUPS, "librdkafka commit, 20 consumers", partial(coordinators.librdkafka_commits, members=20), PER_S),
    _row(GROUPS, "Java share consumer, records", partial(records.java_share, members=1), PER_S),
    _row(GROUPS, "Java share consumers, 10 members, records", partial(records.java_share, members=10), PER_S),
    _row(GROUPS, "Java share consumer, single acks", partial(records.java_share, members=1, singly=True), PER_S),
    _row(
        GROUPS,
        "Java share consumers, 10 members, single acks",
        partial(records.java_share, members=10, singly=True),
        PER_S,
    ),
    _stable("consumer", "KIP-848"),
    _stable("eager", "eager (range)"),
    _stable("cooperative", "cooperative-sticky"),
    *_transactions("Java"),
    *_transactions("librdkafka"),
    *(
        _row(LATENCY, f"end to end, {rate:,} records/s", partial(latency.end_to_end, rate=rate), P50, P99, P999)
        for rate in (200, 1000, 10_000)
    ),
    _produce("over TLS, 1 partition, 500-1,500 B", MIXED, 0.6, place="tls", section=TLS),
    _row(TLS, "Java consume, over TLS", partial(records.java_consume, times=2), MB_PER_S, place="tls"),
    _row(TLS, "librdkafka produce, over TLS", partial(records.librdkafka_produce, part=1.0), MB_PER_S, place="tls"),
    _row(TLS, "librdkafka consume, over TLS", partial(records.librdkafka_consume, times=2), MB_PER_S, place="tls"),
    _produce("by ACL, 1 partition, 500-1,500 B", MIXED, 0.8, place="acl", section=ACL),
    _row(
        ACL,
        "Produce v13, one record, by ACL",
        partial(requests.produce, by_id=True),
        *(PER_S, P99),
        place="acl",
    ),
    _row(
        ACL,
        "OffsetCommit v9, 64 groups, by ACL",
        partial(requests.commit, partitions=1, one_group=False),
        *(PER_S, P99),
        place="acl",
    ),
    _row(STORAGE, "compaction, 1 KB", partial(storage.compaction, value_bytes=1000), MB_PER_S, place="cleaner"),
    _row(STORAGE, "compaction, 100 B", partial(storage.compaction, value_bytes=100), MB_PER_S, place="cleaner"),
    _own(STORAGE, "2,000 partitions", storage.many_partitions, WRITTEN, RESTARTED),
    _own(STORAGE, "recovery of 3 GB after kill -9", storage.recovery, ALL_LED),
    _own(START, "start, then idle", start.start_up, FIRST_ANSWER, MEMORY),
    _produce("RF 3, 1 partition, 500-1,500 B", MIXED, 0.3, place="three", section=THREE),
    _produce(
        "RF 3, 6 partitions, 128 KB batches, 500-1,500 B",
        MIXED,
        0.4,
        *LARGE_BATCHES,
        place="three",
        section=THREE,
        partitions=6,
    ),
    _row(
        THREE,
        "librdkafka produce, RF 3, 1 partition",
        partial(records.librdkafka_produce, part=0.5),
        MB_PER_S,
        place="three",
    ),
    _row(
        THREE,
        "end to end, RF 3, 1,000 records/s",
        partial(latency.end_to_end, rate=1000),
        *(P50, P99, P999),
        place="three",
    ),
    _row(THREE, "a leader is killed, sessions of 6 s", cluster.leader_killed, SILENT, place="three", warms=False),
    _row(THREE, "a leader is stopped", cluster.leader_stopped, SILENT, place="three", warms=False),
)


def chosen(words: Sequence[str]) -> list[Row]:
    """The rows of which one of the words is the section or in the name; all, if there are no words."""
    return [row for row in ROWS if row.chosen(words)]


def by_name(name: str) -> Row | None:
    """The row of that name; None for one that there is no longer."""
    return next((row for row in ROWS if row.name == name), None)
