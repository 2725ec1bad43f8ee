"""Groups in the broker: one `barnabas.coordinator.GroupShard` per partition of `__consumer_offsets` that this broker
leads.

How results become records and answers, and how partitions are loaded and handed over, is
`barnabas.server.coordinators.driver`'s; here is what is asked of groups. A new leader's groups wait for the followers,
but not for ever (`OPEN_SECONDS`), for Apache Kafka does not wait at all; of what was written here since, reads see what
is committed. A commit that is not committed within `offsets.commit.timeout.ms` is answered with an error. What KIP-848
groups need besides is in `barnabas.server.coordinators.consumer_groups`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import trio

from barnabas.coordinator import FetchedOffset, GroupShard, Now, OffsetToCommit, Record, Reply
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from barnabas.logdir import InTransaction
from barnabas.replication import GROUP_METADATA_TOPIC, Image, TopicImage
from barnabas.server.coordinators.consumer_groups import ConsumerGroups, machine_config
from barnabas.server.coordinators.driver import Led, Producer
from barnabas.server.coordinators.loading import Replayed
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import attempt, contain, serve
from barnabas.server.runtime.turns import Steps

OPEN_SECONDS = 2.0
"""How long loaded groups wait at most for the high watermark to pass what was loaded."""


def _is_gone(before: TopicImage, after: TopicImage | None) -> bool:
    return after is None or (after.topic_id != before.topic_id and any(before.topic_id))


class GroupShards(ConsumerGroups):
    """All groups this broker coordinates; see the module. `topics_deleted` is the controller driver's to call; `run`
    must be running for offsets to expire, too.
    """

    topic = GROUP_METADATA_TOPIC
    log = logging.getLogger("barnabas.groups")
    open_s = OPEN_SECONDS

    # -- what the driver asks ---------------------------------------------------------------------

    def _replayed(self, shard: GroupShard) -> Replayed:
        return shard

    def _replay_decided(
        self, shard: GroupShard, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        shard.replay_decided(records, base_offset, committed_to, producer_id)

    def _unloaded(self, led: Led[GroupShard], now: Now) -> Iterable[Reply]:
        self._deleted_topics.pop(led, None)
        return led.shard.unload(now).replies

    def _required_acks(self) -> int:
        return self._config().get_int("offsets.commit.required.acks")

    def _commit_timeout_s(self) -> float:
        return self._config().get_int("offsets.commit.timeout.ms") / 1000

    def _size(self, shard: GroupShard) -> int:
        return len(shard.groups)

    def _loaded(self, led: Led[GroupShard]) -> None:
        super()._loaded(led)
        deleted = self._deleted_topics.pop(led, None)
        if deleted:
            for result in led.shard.topics_deleted(deleted, self._now()):
                self._apply(led, result)
            self._partitions.write_staged()

    # -- what becomes of topics and settings ------------------------------------------------------

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone: so are the offsets that groups committed for them, before a topic of the same name comes."""
        for led in list(self._led.values()):
            if led.is_loaded:
                try:
                    for result in led.shard.topics_deleted(topics, self._now()):
                        self._apply(led, result)
                except Exception as error:
                    contain(self.log, f"removing the offsets of deleted topics in {led!r}", error)
            else:
                self._deleted_topics.setdefault(led, set()).update(topics)
        self._partitions.write_staged()

    def config_changed(self) -> None:
        """The broker's settings were replaced."""
        for led in self._led.values():
            led.shard.set_config(machine_config(self._config()))

    # -- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, expire, create the topic, resolve expressions, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().run)
            nursery.start_soon(serve, self.log, "expiring offsets", self._run_expiry)
            nursery.start_soon(serve, self.log, "resolving expressions", self.run_resolving)

    async def forget_deleted_topics(self, image_until: Callable[[Callable[[Image], bool]], Awaitable[None]]) -> None:
        """In a cluster, topics may be deleted of which this broker has no partition: the picture tells. For ever."""
        before = self._image()
        while True:
            seen = before.topics
            await image_until(lambda image: image.topics is not seen)  # noqa: B023
            before, old = self._image(), seen
            if self._led:
                after = before.topics
                gone = [name for name, topic in old.items() if _is_gone(topic, after.get(name))]
                if gone:
                    self.topics_deleted(gone)

    async def _run_expiry(self) -> None:
        while True:
            await trio.sleep(self._config().get_int("offsets.retention.check.interval.ms") / 1000)
            for led in list(self._led.values()):
                if led.is_loaded:
                    await attempt(self.log, f"expiring offsets of {led!r}", partial(self._expire_offsets, led))

    async def _expire_offsets(self, led: Led[GroupShard]) -> None:
        for result in led.shard.expire_offsets(self._now()):
            self._apply(led, result)
            self._partitions.write_staged()
            await trio.lowlevel.checkpoint()
            if not self._is_led(led):
                break

    # -- where a group lives ----------------------------------------------------------------------

    def is_loaded(self, index: int) -> bool:
        """The groups of a partition are coordinated here, and may be asked."""
        led = self._led.get(index)
        return led is not None and led.is_loaded

    def marker_appended(self, index: int, producer_id: int, committed: bool, offset: int) -> None:
        """A producer's transaction was ended in a partition: a control batch has just been staged there, at `offset`.
        To be called at once, so that the order is that of the log.
        """
        led = self._led.get(index)
        if led is not None and led.is_loaded:
            led.shard.replay_end_of_transaction(producer_id, committed, offset, led.partition.high_watermark)
            led.appended_to = offset + 1

    # -- operations; each raises KafkaError like `_of` --------------------------------------------

    def join(
        self, request: JoinGroupRequest, version: int, client_id: str | None, client_host: str, token: Any
    ) -> None:
        """Answers JoinGroupResponse. `client_host`: the bare address."""
        led = self._of(request.group_id)
        unique = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        self._apply(led, led.shard.join(request, version, client_id, f"/{client_host}", unique, token, self._now()))

    def sync(self, request: SyncGroupRequest, version: int, token: Any) -> None:
        """Answers SyncGroupResponse."""
        led = self._of(request.group_id)
        self._apply(led, led.shard.sync(request, version, token, self._now()))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        led = self._of(request.group_id)
        return led.shard.heartbeat(request, self._now())

    def leave(self, request: LeaveGroupRequest, version: int, token: Any) -> None:
        """Answers LeaveGroupResponse."""
        led = self._of(request.group_id)
        self._apply(led, led.shard.leave(request, version, token, self._now()))

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
        led = self._of(group_id, may_be_empty=True)
        result = led.shard.commit(
            group_id,
            generation,
            member_id,
            instance_id,
            retention_ms,
            offsets,
            token,
            self._now(),
            version=version,
        )
        self._apply(led, result)

    def partition_of(self, group_id: str) -> Partition:
        """Where the offsets of a group are written."""
        return self._of(group_id).partition

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
        led = self._of(group_id)
        result = led.shard.commit_in_transaction(
            group_id, generation, member_id, instance_id, offsets, token, self._now()
        )
        self._apply(led, result, Producer(producer_id, producer_epoch, in_txn))

    def fetch(
        self, group_id: str, partitions: Iterable[tuple[str, int]], require_stable: bool, *, only_found: bool = False
    ) -> list[FetchedOffset]:
        """Committed offsets of the (topic, partition)s; only_found: of those that have one."""
        led = self._of(group_id, may_be_empty=True)
        return led.shard.fetch(group_id, partitions, require_stable, self._committed_to(led), only_found=only_found)

    def with_offsets(self, group_id: str) -> list[tuple[str, int]]:
        """The (topic, partition)s of a group that have offsets, committed or about to be."""
        return self._of(group_id, may_be_empty=True).shard.with_offsets(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this member, or None for nobody in particular, may ask for the group's offsets."""
        return self._of(group_id, may_be_empty=True).shard.check_fetch(group_id, member_id, member_epoch)

    def _committed_to(self, led: Led[GroupShard]) -> int:
        """Reads tell what is in the log before this offset."""
        if self._required_acks() != -1:
            return led.partition.log_end_offset
        return max(led.partition.high_watermark, led.loaded_to)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]], token: Any) -> None:
        """Answers a list of ErrorCode, one per partition, or one for all of the request."""
        led = self._of(group_id)
        self._apply(led, led.shard.delete_offsets(group_id, partitions, token))

    def delete_group(self, group_id: str, token: Any) -> None:
        """Answers an ErrorCode."""
        led = self._of(group_id, may_be_empty=True)
        for result in led.shard.delete_group(group_id, token, self._now()):
            self._apply(led, result)

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        return self._of(group_id, may_be_empty=True).shard.describe(group_id, version)

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Steps[tuple[ErrorCode, list[ListGroupsResponse.ListedGroup]]]:
        """The groups coordinated here; with error 14 if some are being loaded, which are left out. In steps."""
        code = ErrorCode.NONE
        groups: list[ListGroupsResponse.ListedGroup] = []
        for led in list(self._led.values()):
            if not led.is_loaded:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                continue
            for group in led.shard.looked_through(states, types):
                if group is not None:
                    groups.append(group)
                yield 1
        return code, groups
