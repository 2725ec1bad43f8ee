"""Groups in the broker: one `barnabas.coordinator.GroupShard` per partition of `__consumer_offsets` that this broker
leads.

`barnabas.server.coordinators.runtime` turns results into records and answers, and loads and unloads partitions; here
are the operations on groups. A new leader's groups wait for the followers, but no longer than `OPEN_S`, for Apache
Kafka does not wait at all; of later writes, reads see the committed ones. A commit that is not committed within
`offsets.commit.timeout.ms` is answered with an error.

KIP-848 groups need the topics of the cluster (`group_topics`), settings of single groups, and the topics that match
regular expressions (`pattern_resolver`). They are refreshed at a member's request if there is a new image, since the
group then decides anyway.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from barnabas.coordinator import (
    FetchedOffset,
    GroupSettings,
    GroupShard,
    Now,
    OffsetToCommit,
    Record,
    RepeatedCommit,
    Reply,
    ResolvePatterns,
    Result,
    check_heartbeat,
)
from barnabas.kproto import ErrorCode, KafkaError, uuid_to_text
from barnabas.kproto.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from barnabas.logdir import InTransaction, OwnProducer
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.config import groups as group_config
from barnabas.server.config import share_groups, streams_groups
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, ShardState
from barnabas.server.coordinators.gone_topics import GoneTopics
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.group_topics import GroupTopics
from barnabas.server.coordinators.loading import Replayed
from barnabas.server.coordinators.machine_config import machine_config
from barnabas.server.coordinators.pattern_resolver import Found, MaySee, PatternResolver, ToResolve
from barnabas.server.coordinators.runtime import CoordinatorRuntime
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import serve
from barnabas.server.runtime.offload import Offload, in_thread
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.coordinator.group.share import ShareGroupConfig
    from barnabas.coordinator.group.streams import StreamsGroupConfig, StreamsSettings
    from barnabas.server.coordinators.share.groups import ShareGroupOperations
    from barnabas.server.coordinators.share.persister import SharePersister
    from barnabas.server.coordinators.streams.groups import StreamsGroupOperations
    from barnabas.server.coordinators.streams.internal_topics import TopicMaker

OPEN_S = 2.0
"""How long loaded groups wait at most for the high watermark to pass what was loaded."""


class GroupCoordinator:
    """All groups this broker coordinates; see the module. It is its runtime's `Subject`. `run` must be running for
    partitions to be loaded, offsets to expire, expressions to be resolved, and the topic to be created.

    random: for the ids of members. persister: who asks share coordinators, once there is somebody to ask for; None:
    share groups are not served. topic_maker: makes the internal topics of streams groups; None: these are not served.
    runtime: its shards, to inspect them. The runtime's own methods, for `barnabas.server.partitions.registry` and for
    FindCoordinator: `lead`, `resign`, `resign_all`, `write_failed`; `place`, `want_topic`.
    """

    topic = GROUP_METADATA_TOPIC
    log = logging.getLogger("barnabas.groups")
    open_s: float | None = OPEN_S

    def __init__(
        self,
        ground: CoordinatorGround,
        *,
        random: Random,
        offload: Offload = in_thread,
        persister: Callable[[], SharePersister] | None = None,
        topic_maker: TopicMaker | None = None,
    ) -> None:
        self._image = ground.current_image
        self._config = ground.current_config
        self._partitions = ground.partitions
        self._ground = ground
        self._random = random
        self._take_config()
        self._topics = GroupTopics()
        self._may_see: MaySee | None = None  # of the member whose heartbeat is processed
        self._patterns = PatternResolver(ground, self.log, offload, self._patterns_resolved)
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(ground, self)
        self._shards = self.runtime.shards
        self._results = self.runtime.results
        self._gone_topics: GoneTopics[GroupShard, str] = GoneTopics(ground, self.runtime, _forgotten)
        self._persister = persister
        self._topic_maker = topic_maker
        self._streams_operations: StreamsGroupOperations | None = None
        self._share_operations: ShareGroupOperations | None = None
        self.lead = self.runtime.lead
        self.resign = self.runtime.resign
        self.resign_all = self.runtime.resign_all
        self.write_failed = self.runtime.write_failed
        self.place = self.runtime.topic.place
        self.want_topic = self.runtime.topic.want
        self.topics_deleted = self._gone_topics.deleted  # by name: the offsets that groups committed for them go too

    # -- what the runtime asks --------------------------------------------------------------------

    def new_shard(self, partition: Partition) -> GroupShard:
        """Part of `Subject`."""
        self._refresh_topics()
        shard = GroupShard(
            machine_config(self._config()),
            self._settings_of,
            None if self._persister is None else self._share_config,
            self._share_settings_of,
            None if self._topic_maker is None else self._streams_config,
            self._streams_settings_of,
        )
        shard.set_topics(self._topics.topics, self._topics.topics.by_name.keys())
        return shard

    def replayed(self, shard: GroupShard) -> Replayed:
        """Part of `Subject`."""
        return shard

    def replay_decided(
        self, shard: GroupShard, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        """Part of `Subject`: a record that was just made is not decoded again."""
        shard.store.replay_decided(records, base_offset, committed_to, producer_id)

    def activated(self, led: CoordinatedShard[GroupShard]) -> None:
        """Part of `Subject`: topics may have been deleted meanwhile."""
        self._gone_topics.activated(led)

    def unloaded(self, led: CoordinatedShard[GroupShard], now: Now) -> Iterable[Reply]:
        """Part of `Subject`."""
        self._gone_topics.unloaded(led)
        return led.shard.unload(now).replies

    def carry_out(self, led: CoordinatedShard[GroupShard], effect: Any) -> None:
        """Part of `Subject`."""
        if isinstance(effect, ResolvePatterns):
            self._patterns.add(ToResolve(led, led.shard, effect, self._may_see))
        else:
            self.shares.carry_out(led, effect)

    def size(self, shard: GroupShard) -> int:
        """Part of `Subject`."""
        return len(shard.groups)

    # -- what becomes of topics and settings ------------------------------------------------------

    def _take_config(self) -> None:
        """Part of `Subject`: what is asked for each request is not looked up each time."""
        config = self._config()
        self.required_acks = config.get_int("offsets.commit.required.acks")
        self.commit_timeout_s = config.get_int("offsets.commit.timeout.ms") / 1000

    def _settings_of(self, group_id: str) -> GroupSettings | None:
        stored = self._image().group_configs.get(group_id)
        return None if stored is None else group_config.settings_of(self._config(), stored)

    def _share_config(self) -> ShareGroupConfig:
        from barnabas.server.coordinators.share.groups import share_config

        return share_config(self._config())

    def _share_settings_of(self, group_id: str) -> GroupSettings | None:
        stored = self._image().group_configs.get(group_id)
        return None if stored is None else share_groups.group_settings(self._config(), stored)

    def _streams_config(self) -> StreamsGroupConfig:
        from barnabas.server.coordinators.streams.groups import streams_config

        return streams_config(self._config())

    def _streams_settings_of(self, group_id: str) -> StreamsSettings | None:
        stored = self._image().group_configs.get(group_id)
        return None if stored is None else streams_groups.group_settings(self._config(), stored)

    def _refresh_topics(self) -> None:
        changed = self._topics.refresh(self._image())
        if changed:
            for led in self._shards.values():
                led.shard.set_topics(self._topics.topics, changed)

    def _patterns_resolved(self, wanted: ToResolve, found: Found, started_ms: int) -> None:
        now = self._ground.time()
        self._results.apply(wanted.led, wanted.shard.patterns_resolved(wanted.effect, found, started_ms, now))
        self._partitions.write_staged()

    def config_changed(self) -> None:
        """The broker's settings were replaced."""
        self._take_config()
        for led in self._shards.values():
            led.shard.set_config(machine_config(self._config()))
            if led.shard.shares is not None:
                led.shard.shares.set_config(self._share_config())
            if led.shard.streams is not None:
                led.shard.streams.set_config(self._streams_config())

    # -- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, expire, create the topic, resolve expressions, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.run)
            nursery.start_soon(self.runtime.run_upkeep, "expiring offsets", self._expiry_interval_ms, _expired_offsets)
            nursery.start_soon(serve, self.log, "resolving expressions", self._patterns.run)

    def _expiry_interval_ms(self) -> int:
        return self._config().get_int("offsets.retention.check.interval.ms")

    # -- where a group lives ----------------------------------------------------------------------

    def is_loaded(self, index: int) -> bool:
        """Whether the groups of a partition are coordinated here, and loaded."""
        led = self._shards.get(index)
        return led is not None and led.is_active

    def marker_appended(self, index: int, producer_id: int, committed: bool, offset: int) -> None:
        """A producer's transaction was ended in a partition: a control batch has just been staged there, at `offset`.
        To be called immediately, so that the order is that of the log.
        """
        led = self._shards.get(index)
        if led is not None and led.is_active:
            led.shard.replay_end_of_transaction(producer_id, committed, offset, led.partition.high_watermark)
            led.appended_to = offset + 1

    def _group(self, group_id: str) -> CoordinatedShard[GroupShard]:
        """The partition of a group. Raises KafkaError INVALID_GROUP_ID (no id), NOT_COORDINATOR (led elsewhere, or no
        topic) or COORDINATOR_LOAD_IN_PROGRESS.

        The empty id is an old consumer's without a group; it may hold offsets but have no members. Operations on those
        offsets use the runtime directly.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.runtime.active(group_id)

    # -- operations; each raises KafkaError like `_group` --------------------------------------------

    def join(
        self, request: JoinGroupRequest, version: int, client_id: str | None, client_host: str, token: Any
    ) -> None:
        """Answers JoinGroupResponse. `client_host`: the bare address."""
        led = self._group(request.group_id)
        unique = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        now = self._ground.time()
        result = led.shard.join(request, version, client_id, f"/{client_host}", unique, token, now)
        self._results.apply(led, result)

    def sync(self, request: SyncGroupRequest, version: int, token: Any) -> None:
        """Answers SyncGroupResponse."""
        led = self._group(request.group_id)
        self._results.apply(led, led.shard.sync(request, version, token, self._ground.time()))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        led = self._group(request.group_id)
        return led.shard.heartbeat(request, self._ground.time())

    def leave(self, request: LeaveGroupRequest, version: int, token: Any) -> None:
        """Answers LeaveGroupResponse."""
        led = self._group(request.group_id)
        self._results.apply(led, led.shard.leave(request, version, token, self._ground.time()))

    def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        retention_ms: int,
        offsets: Sequence[OffsetToCommit],
        token: Any,
        *,
        version: int = 9,
    ) -> None:
        """Answers a list of ErrorCode, one per offset. `version`: of OffsetCommit."""
        led, now = self.runtime.active(group_id), self._ground.time()
        result = led.shard.offsets.commit(
            group_id, generation, member_id, instance_id, retention_ms, offsets, token, now, version=version
        )
        self._results.apply(led, result, now=now)

    def commit_again(
        self, commit: RepeatedCommit, offsets: Sequence[int], leader_epochs: Sequence[int], token: Any
    ) -> bool:
        """As `commit`, see `OffsetOperations.commit_again`. Answers one ErrorCode; False: `commit` has to."""
        led, now = self.runtime.active(commit.layout.group_id), self._ground.time()
        result = led.shard.offsets.commit_again(commit, offsets, leader_epochs, token, now)
        if result is None:
            return False
        self._results.apply(led, result, None, now)
        return True

    def partition_of(self, group_id: str) -> Partition:
        """Where the offsets of a group are written."""
        return self._group(group_id).partition

    def commit_in_transaction(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        producer_id: int,
        producer_epoch: int,
        in_txn: InTransaction | None,
        token: Any,
    ) -> None:
        """Commit as part of a producer's transaction; in_txn: as for `PartitionLog.append`. Answers as `commit`."""
        led = self._group(group_id)
        result = led.shard.offsets.commit_in_transaction(
            group_id, generation, member_id, instance_id, offsets, token, self._ground.time()
        )
        self._results.apply(led, result, OwnProducer(producer_id, producer_epoch, in_txn))

    def fetch(
        self, group_id: str, partitions: Iterable[tuple[str, int]], require_stable: bool, *, only_found: bool = False
    ) -> list[FetchedOffset]:
        """Committed offsets of the (topic, partition)s; only_found: of those that have one."""
        led = self.runtime.active(group_id)
        committed_to = self.committed_to(led)
        return led.shard.offsets.fetch(group_id, partitions, require_stable, committed_to, only_found=only_found)

    def with_offsets(self, group_id: str) -> list[tuple[str, int]]:
        """The (topic, partition)s of a group that have offsets, committed or about to be."""
        return self.runtime.active(group_id).shard.with_offsets(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this member, or a client that names no member (None), may fetch the group's offsets."""
        return self.runtime.active(group_id).shard.check_fetch(group_id, member_id, member_epoch)

    def committed_to(self, led: CoordinatedShard[GroupShard]) -> int:
        """The offset in the log up to which reads see commits."""
        if self.required_acks != -1:
            return led.partition.log_end_offset
        return max(led.partition.high_watermark, led.loaded_to)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]], token: Any) -> None:
        """Answers a list of ErrorCode, one per partition, or one for all of the request."""
        led = self._group(group_id)
        self._results.apply(led, led.shard.delete_offsets(group_id, partitions, token))

    def delete_group(self, group_id: str, token: Any) -> None:
        """Answers an ErrorCode."""
        led = self.runtime.active(group_id)
        for result in led.shard.delete_group(group_id, token, self._ground.time()):
            self._results.apply(led, result)

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        return self.runtime.active(group_id).shard.describe(group_id, version)

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Steps[tuple[ErrorCode, list[ListGroupsResponse.ListedGroup]]]:
        """The groups coordinated here; with COORDINATOR_LOAD_IN_PROGRESS if some are being loaded, which are left out.
        In steps.
        """
        code = ErrorCode.NONE
        groups: list[ListGroupsResponse.ListedGroup] = []
        for led in list(self._shards.values()):
            if led.state is ShardState.LOADING:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                continue
            for group in led.shard.looked_through(states, types):
                if group is not None:
                    groups.append(group)
                yield 1
        return code, groups

    # -- KIP-932 ----------------------------------------------------------------------------------

    @property
    def shares(self) -> ShareGroupOperations:
        """Operations on share groups. Only with a persister, without which there are none."""
        if self._share_operations is None:
            from barnabas.server.coordinators.share.groups import ShareGroupOperations

            assert self._persister is not None, "share groups are not served"
            self._share_operations = ShareGroupOperations(
                self._ground, self._persister(), self._results, self._group_with_topics
            )
        return self._share_operations

    def _group_with_topics(self, group_id: str) -> CoordinatedShard[GroupShard]:
        led = self._group(group_id)
        self._refresh_topics()
        return led

    # -- KIP-1071 ---------------------------------------------------------------------------------

    @property
    def streams(self) -> StreamsGroupOperations:
        """Operations on streams groups. Only with who makes their topics, without which there are none."""
        if self._streams_operations is None:
            from barnabas.server.coordinators.streams.groups import StreamsGroupOperations

            assert self._topic_maker is not None, "streams groups are not served"
            self._streams_operations = StreamsGroupOperations(
                self._ground, self._topic_maker, self._results, self._group_with_topics, self._streams_settings
            )
        return self._streams_operations

    def _streams_settings(self, group_id: str) -> StreamsSettings:
        stored = self._image().group_configs.get(group_id, {})
        return streams_groups.group_settings(self._config(), stored)

    # -- KIP-848 ----------------------------------------------------------------------------------

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
        expression may match, None for all: those that the member may describe who has it looked up. What is wrong with
        the request (KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) every broker says, as in Apache Kafka.
        """
        from barnabas.server.coordinators import group_patterns

        try:
            led = self.runtime.active(request.group_id)
        except KafkaError:
            check_heartbeat(request, version, machine_config(self._config()))
            raise
        self._refresh_topics()
        # Most heartbeats are of members that have an id.
        unique = request.member_id or uuid_to_text(uuid.UUID(int=self._random.getrandbits(128), version=4).bytes)
        result = led.shard.consumer_heartbeat(
            request,
            version,
            client_id or "",
            f"/{client_host}",
            unique,
            group_patterns.why_invalid,
            token,
            self._ground.time(),
        )
        self._may_see = may_see
        try:
            self._results.apply(led, result)
        finally:
            self._may_see = None

    def consumer_describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """A KIP-848 group; GROUP_ID_NOT_FOUND inside for another or unknown one."""
        return self._group(group_id).shard.consumer_describe(group_id)


def _forgotten(shard: GroupShard, topics: Collection[str], now: Now) -> Iterable[Result]:
    return shard.topics_deleted(topics, now)


def _expired_offsets(shard: GroupShard, now: Now) -> Iterable[Result]:
    return shard.expire_offsets(now)
