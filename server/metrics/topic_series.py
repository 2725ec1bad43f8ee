"""Traffic of topics, and of the broker: as Apache Kafka's BrokerTopicMetrics.

Partitions count what goes through them (`barnabas.server.partitions.traffic`); here the differences since the last
scrape are added up, so that the sums do not fall when a partition goes to another broker. What a partition did between
the last scrape and its end is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.kproto import ErrorCode
from barnabas.server.metrics.page import Page, escaped
from barnabas.server.partitions.traffic import Traffic
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources
    from barnabas.server.partitions.partition import Partition

_PREFIX: Final = "kafka_server_brokertopicmetrics"
_OF_TOPICS: Final = (
    ("messagesin", "records_in", "Records that were appended here, by producers and coordinators."),
    ("bytesin", "bytes_in", "Bytes that were appended here, by producers and coordinators."),
    ("bytesout", "bytes_out", "Bytes of records that consumers were sent."),
    ("bytesrejected", "rejected_bytes", "Bytes of batches that were larger than max.message.bytes."),
    ("totalproducerequests", "appends", "Batches that were to be appended, one for each partition of a request."),
    ("totalfetchrequests", "reads", "Partitions that were read for fetches; a fetch that waits reads more than once."),
)
_OF_BROKER: Final = (
    ("replicationbytesin", "replication_bytes_in", "Bytes that this broker has fetched from leaders."),
    ("replicationbytesout", "replication_bytes_out", "Bytes that followers were sent."),
)
_ISR: Final = (
    ("isrshrinks", "isr_shrinks", "Changes that took a replica out of an ISR, of partitions led here."),
    ("isrexpands", "isr_expands", "Changes that took a replica into an ISR, of partitions led here."),
    ("failedisrupdates", "isr_refusals", "Changes of an ISR that the controller has refused."),
)
_FIELDS: Final = (*(field for _, field, _ in _OF_TOPICS), *(field for _, field, _ in (*_OF_BROKER, *_ISR)))
_UNEXPECTED: Final = (ErrorCode.UNKNOWN_SERVER_ERROR,)

Values = tuple[int, ...]
_NOTHING: Final[Values] = (0,) * len(_FIELDS)


class TopicSeries:
    """See the module. Holds on to partitions until the next scrape."""

    def __init__(self) -> None:
        self._seen: dict[Traffic, Values] = {}
        self._topics: dict[str, list[int]] = {}
        self._all = [0] * len(_FIELDS)

    def add(self, page: Page, sources: Sources, partitions: Sequence[Partition]) -> Steps[None]:
        """partitions: those on this broker, sorted."""
        seen: dict[Traffic, Values] = {}
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            yield 1
            traffic = partition.traffic
            values = seen[traffic] = tuple([getattr(traffic, field) for field in _FIELDS])
            before = self._seen.get(traffic, _NOTHING)
            sums = topics.get(partition.topic)
            if sums is None:
                sums = topics[partition.topic] = self._topics.get(partition.topic) or [0] * len(_FIELDS)
            if values != before:
                for at, (value, old) in enumerate(zip(values, before, strict=True)):
                    sums[at] += value - old
                    self._all[at] += value - old
        self._seen, self._topics = seen, topics
        has_series = len(partitions) <= sources.config.get_int("metrics.partitions.max")
        of_topics = [page.counters(f"{_PREFIX}_{name}", text) for name, _, text in _OF_TOPICS]
        for at, ((name, _, _), lines) in enumerate(zip(_OF_TOPICS, of_topics, strict=True)):
            lines.append(f"{_PREFIX}_{name}_total {self._all[at]}")
        if has_series:
            for topic, sums in topics.items():
                yield 2
                label = f'{{topic="{escaped(topic)}"}}'
                for (name, _, _), lines, value in zip(_OF_TOPICS, of_topics, sums, strict=False):
                    lines.append(f"{_PREFIX}_{name}_total{label} {value}")
        at = len(_OF_TOPICS)
        for name, _, text in _OF_BROKER:
            page.counter(f"{_PREFIX}_{name}", text, self._all[at])
            at += 1
        for name, _, text in _ISR:
            page.counter(f"kafka_server_replicamanager_{name}", text, self._all[at])
            at += 1
        errors = sources.counted.meter.errors
        for name, api in (("produce", "Produce"), ("fetch", "Fetch")):
            page.counter(
                f"{_PREFIX}_failed{name}requests",
                f"Partitions of {api} requests that failed unexpectedly: with UNKNOWN_SERVER_ERROR.",
                errors.of(api, *_UNEXPECTED),
            )
