"""Groups that this broker coordinates: state, members, rebalances, committed offsets, lag in records and in seconds.

Of partitions led here both ends are at hand; of those followed here the high watermark may be some milliseconds old. Of
others their leaders are asked (`foreign_ends`), for the lag in records alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.coordinator import GroupShard
from barnabas.kproto import ErrorCode
from barnabas.server.metrics.group_lag import Lag, LagTimes
from barnabas.server.metrics.page import Page, escaped, labels
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
    from barnabas.server.metrics.sources import Sources

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_GROUP: Final = "kafka_consumergroup"
_READ_UNITS: Final = 8
"""The cost of a look-up of a time, beside the lines."""
_PARTITION_UNITS: Final = 4
_STATES: Final = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")


class GroupSeries:
    """Keeps the times of unread records from one scrape to the next."""

    def __init__(self) -> None:
        self._times = LagTimes()

    def add(self, page: Page, sources: Sources, now_ms: int) -> Steps[None]:
        """now_ms: the wall clock."""
        coordinator = sources.services.groups
        self._times.begin()
        found: list[tuple[str, CoordinatedShard[GroupShard]]] = []
        states: Counter[str] = Counter()
        offset_count = 0
        for led in list(coordinator.runtime.shards.values()):
            if not led.is_active:
                continue
            for group_id, group in list(led.shard.groups.items()):
                yield 1
                states[group.state_name] += 1
                offset_count += len(group.offsets)
                found.append((group_id, led))
        page.gauge(f"{_MANAGER}_numgroups", "Groups that this broker coordinates.", len(found))
        page.gauge(f"{_MANAGER}_numoffsets", "Offsets that these groups have committed.", offset_count)
        for state in _STATES:
            page.gauge(
                f"{_MANAGER}_numgroups{state.lower()}",
                f"Groups in state {state}, of those that this broker coordinates.",
                states[state],
            )
        lines = page.gauges("barnabas_groups", "Groups that this broker coordinates, by state.")
        lines += [f"barnabas_groups{labels(state=state)} {count}" for state, count in sorted(states.items())]
        found.sort(key=lambda each: each[0])
        limit = sources.config.get_int("metrics.groups.max")
        page.gauge(
            "barnabas_metrics_groups_left_out",
            "Groups without series of their own, as there are more than metrics.groups.max.",
            max(len(found) - limit, 0),
        )
        info = page.gauges(
            "barnabas_group_info",
            "Always 1: the group's state, and its type: classic, consumer (KIP-848) or streams (KIP-1071).",
        )
        members = page.gauges(f"{_GROUP}_members", "Members of the group.")
        rebalances = page.counters("barnabas_group_rebalances", "Rebalances of the group that began here, by reason.")
        for group_id, led in found[:limit]:
            if led.is_closed or group_id not in led.shard.groups:
                continue
            group = led.shard.groups[group_id]
            name = escaped(group_id)
            info.append(
                f'barnabas_group_info{{consumergroup="{name}",state="{group.state_name}",type="{group.kind}"}} 1'
            )
            members.append(f'{_GROUP}_members{{consumergroup="{name}"}} {len(group.members)}')
            for why, count in sorted(group.rebalances.items(), key=lambda item: item[0].value):
                rebalances.append(
                    f'barnabas_group_rebalances_total{{consumergroup="{name}",reason="{why.value}"}} {count}'
                )
            yield from self._add_offsets(page, sources, group_id, led, now_ms)

    def _add_offsets(
        self, page: Page, sources: Sources, group_id: str, led: CoordinatedShard[GroupShard], now_ms: int
    ) -> Steps[None]:
        coordinator, find = sources.services.groups, sources.services.partitions.find
        offsets = page.gauges(f"{_GROUP}_current_offset", "The committed offset: the next record to read.")
        offset_sums = page.gauges(f"{_GROUP}_current_offset_sum", "The sum of committed offsets of a topic.")
        lags = page.gauges(
            f"{_GROUP}_lag", "Records between the committed offset and the high watermark of the partition."
        )
        lag_sums = page.gauges(f"{_GROUP}_lag_sum", "The sum of the lags of a topic's partitions.")
        ages = page.gauges(
            f"{_GROUP}_lag_seconds",
            "The age of the first record that the group has not read, by the first time of its batch; 0: it has read "
            "all.",
        )
        name = escaped(group_id)
        topic, offset_sum, lag_sum, knows_lag = "", 0, 0, False

        def end_topic() -> None:
            if topic:
                of_topic = f'{{consumergroup="{name}",topic="{escaped(topic)}"}}'
                offset_sums.append(f"{_GROUP}_current_offset_sum{of_topic} {offset_sum}")
                if knows_lag:
                    lag_sums.append(f"{_GROUP}_lag_sum{of_topic} {lag_sum}")

        for key in sorted(led.shard.groups[group_id].offsets.partitions()):
            if led.is_closed:
                break
            fetched = led.shard.offsets.fetch(group_id, [key], False, coordinator.committed_to(led), only_found=True)
            if not fetched or fetched[0].error != ErrorCode.NONE or fetched[0].offset < 0:
                yield 1
                continue
            if key[0] != topic:
                end_topic()
                topic, offset_sum, lag_sum, knows_lag = key[0], 0, 0, False
            committed = fetched[0].offset
            of_partition = f'{{consumergroup="{name}",topic="{escaped(topic)}",partition="{key[1]}"}}'
            offsets.append(f"{_GROUP}_current_offset{of_partition} {committed}")
            offset_sum += committed
            partition, lag, has_read = find(*key), None, False
            if partition is not None:
                lag, has_read = self._times.lag(group_id, partition, committed, now_ms)
            elif sources.foreign_ends is not None:
                end = sources.foreign_ends.high_watermark(*key)
                lag = None if end is None else Lag(max(end - committed, 0), None if end > committed else 0.0)
            if lag is not None:
                lags.append(f"{_GROUP}_lag{of_partition} {lag.records}")
                lag_sum += lag.records
                knows_lag = True
                if lag.seconds is not None:
                    ages.append(f"{_GROUP}_lag_seconds{of_partition} {lag.seconds}")
            yield _PARTITION_UNITS + _READ_UNITS * has_read
        end_topic()
