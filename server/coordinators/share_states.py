"""The share coordinator in the broker: one `barnabas.coordinator.share.StateShard` per partition of
`__share_group_state` that is led here.

`barnabas.server.coordinators.runtime` turns results into records and answers, and loads and unloads partitions; here
are the operations on share partitions, and the upkeep of the log: the topic is not compacted, so snapshots that have
grown old are written again, and what lies before all last snapshots is cut off. A loaded partition is served when all
of it is committed, as for transactions: nothing may be told that may still be lost.

A token is answered with a value of `barnabas.coordinator.share`, once: `Stored`, `StateRead` or `Summary`. A change
that is not committed within `share.coordinator.write.timeout.ms` is answered COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.coordinator import Now, Record, Reply, Result
from barnabas.replication import SHARE_GROUP_STATE_TOPIC
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
from barnabas.server.coordinators.gone_topics import GoneTopics
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.group_topics import GroupTopics
from barnabas.server.coordinators.loading import Replayed, WithoutTransactions
from barnabas.server.coordinators.runtime import CoordinatorRuntime
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import attempt, serve

if TYPE_CHECKING:
    from barnabas.coordinator.share import ShareKey, StateConfig, StateShard, WriteState


def state_config(config: BrokerConfig) -> StateConfig:
    """The machine's settings out of the broker's."""
    from barnabas.coordinator.share import StateConfig

    return StateConfig(
        snapshot_update_records_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
        cold_partition_snapshot_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
    )


class ShareStateCoordinator:
    """The share partitions that this broker coordinates; see the module. It is its runtime's `Subject`. `run` must be
    running for partitions to be loaded, the log to be kept short, and the topic to be created.

    runtime: its shards, to inspect them. The runtime's own methods, for `barnabas.server.partitions.registry` and for
    FindCoordinator: `lead`, `resign`, `resign_all`, `write_failed`; `place`, `want_topic`. A share partition's key
    there is `barnabas.coordinator.share.coordinator_key`.
    """

    topic = SHARE_GROUP_STATE_TOPIC
    log = logging.getLogger("barnabas.groups")
    open_s: float | None = None

    def __init__(self, ground: CoordinatorGround) -> None:
        self._image = ground.current_image
        self._config = ground.current_config
        self._partitions = ground.partitions
        self._ground = ground
        self._topics = GroupTopics()
        self.runtime: CoordinatorRuntime[StateShard] = CoordinatorRuntime(ground, self)
        self._shards = self.runtime.shards
        self._results = self.runtime.results
        self._gone_topics: GoneTopics[StateShard, bytes] = GoneTopics(ground, self.runtime, _forgotten)
        self.lead = self.runtime.lead
        self.resign = self.runtime.resign
        self.resign_all = self.runtime.resign_all
        self.write_failed = self.runtime.write_failed
        self.place = self.runtime.topic.place
        self.want_topic = self.runtime.topic.want

    # -- what the runtime asks ---------------------------------------------------------------------

    def new_shard(self, partition: Partition) -> StateShard:
        """Part of `Subject`."""
        from barnabas.coordinator.share import StateShard

        self._refresh_topics()
        shard = StateShard(state_config(self._config()))
        shard.set_topics(self._topics.topics)
        return shard

    def replayed(self, shard: StateShard) -> Replayed:
        """Part of `Subject`."""
        return WithoutTransactions(shard.replay)

    def replay_decided(
        self, shard: StateShard, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        """Part of `Subject`."""
        for offset, (key, value, _) in enumerate(records, base_offset):
            shard.replay(key, value, offset)

    def activated(self, led: CoordinatedShard[StateShard]) -> None:
        """Part of `Subject`: topics may have been deleted meanwhile."""
        self._gone_topics.activated(led)

    def unloaded(self, led: CoordinatedShard[StateShard], now: Now) -> Iterable[Reply]:
        """Part of `Subject`."""
        self._gone_topics.unloaded(led)
        led.shard.unload()
        return ()

    @property
    def required_acks(self) -> int:
        """Part of `Subject`: all in-sync replicas must have a state before a member is told."""
        return -1

    @property
    def commit_timeout_s(self) -> float:
        """Part of `Subject`."""
        return self._config().get_int("share.coordinator.write.timeout.ms") / 1000

    def size(self, shard: StateShard) -> int:
        """Part of `Subject`."""
        return len(shard.store.partitions)

    def carry_out(self, led: CoordinatedShard[StateShard], effect: Any) -> None:
        """Part of `Subject`: there are no effects."""
        raise TypeError(f"{self.topic} knows no such effect: {effect!r}")

    # -- what becomes of topics and settings ------------------------------------------------------

    def _refresh_topics(self) -> None:
        if self._topics.refresh(self._image()):
            for led in self._shards.values():
                led.shard.set_topics(self._topics.topics)

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Topics are gone, and with them what is stored of their partitions."""
        self._refresh_topics()
        self._gone_topics.deleted(topic_ids)

    def config_changed(self) -> None:
        """The broker's settings were replaced."""
        for led in self._shards.values():
            led.shard.set_config(state_config(self._config()))

    # -- upkeep ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, keep the log short, and create the topic, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.run)
            nursery.start_soon(
                self.runtime.run_upkeep, "writing old snapshots again", self._snapshot_interval_ms, _old_snapshots
            )
            nursery.start_soon(serve, self.log, "cutting off what is redundant", self._run_pruning)

    def _snapshot_interval_ms(self) -> int:
        return self._config().get_int("share.coordinator.cold.partition.snapshot.interval.ms")

    async def _run_pruning(self) -> None:
        while True:
            await trio.sleep(self._config().get_int("share.coordinator.state.topic.prune.interval.ms") / 1000)
            for led in list(self._shards.values()):
                if led.is_active:
                    await attempt(self.log, f"cutting off what is redundant of {led!r}", partial(self._prune, led))

    async def _prune(self, led: CoordinatedShard[StateShard]) -> None:
        partition = led.partition
        offset = led.shard.redundant_to(partition.high_watermark)
        if offset is not None and offset > partition.log_start_offset:
            partition.log.delete_records(offset, partition.high_watermark)
            self.log.info("%r begins at offset %d now", led, offset)
        await trio.lowlevel.checkpoint()

    # -- operations --------------------------------------------------------------------------------

    def _of(self, key: ShareKey) -> CoordinatedShard[StateShard]:
        """The partition of a key. Raises KafkaError NOT_COORDINATOR (led elsewhere, or no topic) or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        from barnabas.coordinator.share import coordinator_key

        led = self.runtime.active(coordinator_key(key))
        self._refresh_topics()
        return led

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, token: Any) -> None:
        """Begin anew; see `StateShard.initialize`. Answers `Stored`."""
        led = self._of(key)
        self._results.apply(led, led.shard.initialize(key, state_epoch, start_offset, token, self._ground.time()))

    def read(self, key: ShareKey, leader_epoch: int, token: Any) -> None:
        """What is stored, for a leader; see `StateShard.read`. Answers `StateRead`."""
        led = self._of(key)
        self._results.apply(led, led.shard.read(key, leader_epoch, token, self._ground.time()))

    def write(self, key: ShareKey, write: WriteState, token: Any) -> None:
        """Merge what changed; see `StateShard.write`. Answers `Stored`."""
        led = self._of(key)
        self._results.apply(led, led.shard.write(key, write, token, self._ground.time()))

    def delete(self, key: ShareKey, token: Any) -> None:
        """Forget it; see `StateShard.delete`. Answers `Stored`."""
        led = self._of(key)
        self._results.apply(led, led.shard.delete(key, token, self._ground.time()))

    def summary(self, key: ShareKey, token: Any) -> None:
        """For administrators; see `StateShard.summary`. Answers `Summary`."""
        led = self._of(key)
        self._results.apply(led, led.shard.summary(key, token, self._ground.time()))


def _forgotten(shard: StateShard, topic_ids: Collection[bytes], now: Now) -> Iterable[Result]:
    return shard.topics_deleted(topic_ids, now)


def _old_snapshots(shard: StateShard, now: Now) -> Iterable[Result]:
    return shard.snapshot_old(now)
