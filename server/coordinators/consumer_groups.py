"""What KIP-848 groups need of the broker, beyond what all group machines need: the topics of the cluster, settings of
single groups, and the topics that match regular expressions.

Topics are looked at when a member asks for something and the picture is another one; a group decides then anyway. The
names that match an expression are found between two rounds of the loop, or in a thread where that takes longer than a
few milliseconds (`INLINE_MATCHES`).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

import trio

from barnabas.coordinator import GroupConfig, GroupSettings, GroupShard, ResolvePatterns, check_heartbeat
from barnabas.kproto import ErrorCode, KafkaError, uuid_to_text
from barnabas.kproto.messages import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest
from barnabas.replication import Image
from barnabas.server.config import groups as group_config
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.driver import CreateTopic, Led, ShardDriver
from barnabas.server.coordinators.group_topics import GroupTopics
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.runtime.containment import attempt
from barnabas.server.runtime.offload import Offload, in_thread
from barnabas.server.runtime.timers import Timers
from barnabas.server.settings.consumer_groups import ASSIGNORS

INLINE_MATCHES = 500
"""Names times expressions that are matched on the loop: one takes some 7 us."""


def machine_config(config: BrokerConfig) -> GroupConfig:
    """The machine's settings out of the broker's."""
    assignors = config.get_value("group.consumer.assignors")
    assert isinstance(assignors, tuple)
    return GroupConfig(
        group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        group_max_size=config.get_int("group.max.size"),
        group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        consumer_assignors=tuple(ASSIGNORS[name] for name in assignors),
        consumer_migration_policy=config.get_str("group.consumer.migration.policy").lower(),
        consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
    )


MaySee = Callable[[str], bool]
"""Whether a topic of that name may be known to whoever asks."""


class _ToResolve(NamedTuple):
    led: Led[GroupShard]
    shard: GroupShard
    effect: ResolvePatterns
    may_see: MaySee | None = None


class ConsumerGroups(ShardDriver[GroupShard]):
    """See the module; `run_resolving` must be running for expressions to be resolved. The random source is given."""

    def __init__(
        self,
        partitions: Partitions,
        timers: Timers,
        *,
        current_image: Callable[[], Image],
        current_config: Callable[[], BrokerConfig],
        create_topic: CreateTopic,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        random: Random,
        offload: Offload = in_thread,
    ) -> None:
        super().__init__(
            partitions,
            timers,
            current_image=current_image,
            current_config=current_config,
            create_topic=create_topic,
            now=now,
            wall_ms=wall_ms,
        )
        self._random = random
        self._offload = offload
        self._topics = GroupTopics()
        # While a partition is being loaded: topics whose offsets must go then.
        self._deleted_topics: dict[Led[GroupShard], set[str]] = {}
        self._to_resolve: deque[_ToResolve] = deque()
        self._may_see: MaySee | None = None  # of the member whose heartbeat is looked at
        self._resolving_wanted = trio.Event()

    # -- what the driver asks ---------------------------------------------------------------------

    def _new_shard(self, partition: Partition) -> GroupShard:
        self._look_at_topics()
        shard = GroupShard(machine_config(self._config()), self._settings_of)
        shard.set_topics(self._topics.topics, self._topics.topics.by_name.keys())
        return shard

    def _carry_out(self, led: Led[GroupShard], effect: Any) -> None:
        if not isinstance(effect, ResolvePatterns):
            return super()._carry_out(led, effect)
        self._to_resolve.append(_ToResolve(led, led.shard, effect, self._may_see))
        self._resolving_wanted.set()

    def _settings_of(self, group_id: str) -> GroupSettings | None:
        stored = self._image().group_configs.get(group_id)
        return None if stored is None else group_config.settings_of(self._config(), stored)

    def _look_at_topics(self) -> None:
        changed = self._topics.look(self._image())
        if changed:
            for led in self._led.values():
                led.shard.set_topics(self._topics.topics, changed)

    def _of(self, group_id: str, *, may_be_empty: bool = False) -> Led[GroupShard]:
        """The partition of a group. Raises KafkaError 24 (no id), 16 (led elsewhere, or no topic) or 14 (loading).

        The empty id is an old consumer's without a group; it may hold offsets but have no members.
        """
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._led_for(group_id)

    # -- tasks ------------------------------------------------------------------------------------

    async def run_resolving(self) -> None:
        """Find the topics that match expressions, one group's after the other, for ever."""
        while True:
            while self._to_resolve:
                wanted = self._to_resolve.popleft()
                await attempt(self.log, f"resolving expressions in {wanted.led!r}", partial(self._resolve, wanted))
                await trio.lowlevel.checkpoint()
            await self._resolving_wanted.wait()
            self._resolving_wanted = trio.Event()

    async def _resolve(self, wanted: _ToResolve) -> None:
        from barnabas.server.coordinators import group_patterns  # few groups have expressions

        led, shard, effect, may_see = wanted
        started_ms = self._wall_ms()
        names = effect.topics.by_name.keys()
        found = None
        try:
            if len(names) * len(effect.patterns) <= INLINE_MATCHES:
                found = group_patterns.matches(effect.patterns, names)
            else:
                found = await self._offload(group_patterns.matches, effect.patterns, names)
            if may_see is not None:
                found = {pattern: frozenset(filter(may_see, topics)) for pattern, topics in found.items()}
        except Exception:
            self.log.exception("expressions of group %r cannot be resolved", effect.group_id)
        if self._is_led(led) and led.shard is shard:
            self._apply(led, shard.patterns_resolved(effect, found, started_ms, self._now()))
            self._partitions.write_staged()

    # -- operations; each raises KafkaError like `_of` --------------------------------------------

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        token: Any,
        may_see: MaySee | None = None,
    ) -> None:
        """Answers ConsumerGroupHeartbeatResponse. `client_host`: the bare address. `may_see`: which topics an
        expression may match, None for all: those that the member may describe who has it looked up. Raises
        KafkaError 14, 15, 16, and 42 or 112 for what is wrong with the request, which every broker says, as in
        Apache Kafka.
        """
        from barnabas.server.coordinators import group_patterns

        try:
            led = self._of(request.group_id, may_be_empty=True)
        except KafkaError:
            check_heartbeat(request, version, machine_config(self._config()))
            raise
        self._look_at_topics()
        unique = uuid_to_text(uuid.UUID(int=self._random.getrandbits(128), version=4).bytes)
        result = led.shard.consumer_heartbeat(
            request,
            version,
            client_id or "",
            f"/{client_host}",
            unique,
            group_patterns.why_invalid,
            token,
            self._now(),
        )
        self._may_see = may_see
        try:
            self._apply(led, result)
        finally:
            self._may_see = None

    def consumer_describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """A KIP-848 group; error 69 inside for another or unknown one."""
        return self._of(group_id).shard.consumer_describe(group_id)
