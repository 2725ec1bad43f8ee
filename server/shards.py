"""Drives the group machines: one `coordinator.GroupShard` per partition of `__consumer_offsets` that this broker leads.

What a shard decides is appended as one batch, replayed at once, and answered when committed:

    handler or timer → shard operation → Result → Partition.append → shard.replay → (high watermark) → token.reply

Appending only *stages*; the round's one write carries what all groups of a partition decided in it, so a hundred
commits share a file write and a commit that is alone costs no wait. Timers and tasks, which run outside a round, end
with the write themselves.

If the log refuses, the machine takes its soft state back and says what to answer (`Result.failed`); a write that is
not committed within `offsets.commit.timeout.ms`, or with too few replicas, is answered with the error that this means
for the client and stays in the log. A write error takes the log directory offline, and its groups are forgotten
(`resign`), so nothing replayed from a lost write is ever served.

Loading: whoever becomes leader replays the partition from its log start to its *end*, in slices between which the loop
runs. What is behind the high watermark then was perhaps acknowledged by the leader before, whose high watermark was
ahead of ours: it must not be left out of an answer. It will be committed as soon as the followers have fetched once;
the groups wait for that, but not for ever (`OPEN_SECONDS`), for Apache Kafka does not wait at all. Meanwhile they
answer COORDINATOR_LOAD_IN_PROGRESS. Of what was written here since, reads see what is committed. Batches that cannot
be read are reported and skipped: one bad sector must not take every group of the partition away.

Handing over: `lead` and `resign` are called in the order of the partition's leader epochs, on this thread, so a late
one cannot be mistaken for news; what is under way (a load, a held answer) belongs to one `_Led` and ends with it.

A token is anything with `reply(response)`: a RequestContext, or a handler's own collector. The clock is `timers`'
(trio's), the random source is given.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import trio

import coordinator
from coordinator import FetchedOffset, GroupConfig, GroupShard, Now, OffsetToCommit, Reply, Result, partition_for
from kproto import ErrorCode, KafkaError
from kproto.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from kproto.records import Record, build_batch
from logdir import AppendOrigin
from replication import GROUP_METADATA_TOPIC, Image, PartitionImage, TopicImage
from server.config import BrokerConfig
from server.partition import Partition
from server.partitions import Partitions
from server.shard_loading import replay_slice
from server.timers import Timer, Timers

log = logging.getLogger("barnabas.groups")

LOAD_BYTES = 64 * 1024
"""One slice of loading: some hundred records, a few milliseconds of the loop."""
LOAD_RETRY_SECONDS = 5.0
OPEN_SECONDS = 2.0
"""How long loaded groups wait at most for the high watermark to pass what was loaded."""
EXPIRE_PER_CALLBACK = 500
CREATE_RETRY_SECONDS = 1.0

CreateTopic = Callable[[str, int, int, Mapping[str, str]], Awaitable[None]]
"""Creates a topic: name, partitions, replication factor, configuration. Raises KafkaError."""


def group_config(config: BrokerConfig) -> GroupConfig:
    """The machine's settings out of the broker's."""
    return GroupConfig(
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_max_size=config.int("group.max.size"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
    )


def offsets_topic_config(config: BrokerConfig) -> dict[str, str]:
    """The configuration `__consumer_offsets` is created with; compaction keeps the newest record of each key."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
    }


def _is_gone(before: TopicImage, after: TopicImage | None) -> bool:
    return after is None or (after.topic_id != before.topic_id and any(before.topic_id))


class _Held(NamedTuple):
    """A result whose `held` replies wait until the high watermark reaches `end_offset`, or until `due` (seconds)."""

    end_offset: int
    due: float
    result: Result


class _Led:
    """A partition of `__consumer_offsets` that this broker leads, and its groups. `loaded_to`, `appended_to`: the
    offsets behind the last record that was replayed from the log, and that was written for them.
    """

    __slots__ = (
        "appended_to",
        "commit_timer",
        "deleted_topics",
        "held",
        "is_loaded",
        "loaded_to",
        "partition",
        "shard",
        "timer",
    )

    def __init__(self, partition: Partition, shard: GroupShard) -> None:
        self.partition = partition
        self.shard = shard
        self.is_loaded = False
        self.appended_to = 0
        self.loaded_to = 0
        self.deleted_topics: set[str] = set()
        self.held: deque[_Held] = deque()
        self.timer: Timer | None = None
        self.commit_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"


class GroupShards:
    """All groups this broker coordinates; see the module. `lead`, `resign` and `topics_deleted` are the controller
    driver's to call; `run` must be running for partitions to be loaded, offsets to expire, and the topic to be
    created.
    """

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
    ) -> None:
        self._partitions = partitions
        self._timers = timers
        self._image = current_image
        self._config = current_config
        self._create_topic = create_topic
        self._clock = now
        self._wall_ms = wall_ms
        self._random = random
        self._led: dict[int, _Led] = {}
        self._to_load: deque[_Led] = deque()
        self._load_wanted = trio.Event()
        self._topic_wanted = trio.Event()

    def _now(self) -> Now:
        return Now(self._clock(), self._wall_ms())

    # -- roles, told by the controller driver -----------------------------------------------------

    def lead(self, partition: Partition) -> None:
        """This broker leads a partition of `__consumer_offsets` (again: another epoch changes nothing)."""
        led = self._led.get(partition.index)
        if led is not None and led.partition is partition:
            return
        if led is not None:
            self.resign(partition.index)
        led = self._led[partition.index] = _Led(partition, GroupShard(group_config(self._config())))
        if partition.log_start_offset >= partition.log_end_offset:
            self._loaded(led)
        else:
            self._to_load.append(led)
            self._load_wanted.set()

    def resign(self, index: int) -> None:
        """Another broker leads, or the topic is deleted: whoever waits is sent away, the groups are forgotten."""
        led = self._led.pop(index, None)
        if led is None:
            return
        now = self._now()
        for timer in (led.timer, led.commit_timer):
            if timer is not None:
                timer.cancel()
        self._deliver(led.shard.unload(now).replies)
        held, led.held = led.held, deque()
        for each in held:
            if each.result.failed is not None:
                # The groups are dead by now, so there is nothing to write any more.
                self._deliver(each.result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, now).replies)
        log.info("no longer the coordinator for %r", led)

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone: so are the offsets that groups committed for them, before a topic of the same name comes."""
        for led in list(self._led.values()):
            if led.is_loaded:
                for result in led.shard.topics_deleted(topics, self._now()):
                    self._apply(led, result)
            else:
                led.deleted_topics.update(topics)
        self._partitions.write_staged()

    def config_changed(self) -> None:
        """The broker's settings were replaced."""
        for led in self._led.values():
            led.shard.set_config(group_config(self._config()))

    # -- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, expire and create topics for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_loading)
            nursery.start_soon(self._run_expiry)
            nursery.start_soon(self._run_topic_creation)

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

    async def _run_loading(self) -> None:
        while True:
            while self._to_load:
                led = self._to_load.popleft()
                if not await self._load(led):
                    self._timers.after(LOAD_RETRY_SECONDS, partial(self._load_again, led))
            await self._load_wanted.wait()
            self._load_wanted = trio.Event()

    def _load_again(self, led: _Led) -> None:
        if self._is_led(led):
            self._to_load.append(led)
            self._load_wanted.set()

    async def _load(self, led: _Led) -> bool:
        """Replay the whole log of `led`. False: the log could not be read; to be tried again."""
        partition = led.partition
        started = self._clock()
        led.shard = GroupShard(group_config(self._config()))
        offset = partition.log_start_offset
        try:
            while self._is_led(led) and offset < partition.log_end_offset:
                end_offset = partition.log_end_offset
                found = partition.read(offset, LOAD_BYTES, upper_offset=end_offset, min_one_batch=True)
                if found is None:
                    break
                next_offset = replay_slice(led.shard, found.read(), offset, end_offset, end_offset)
                offset = max(next_offset, offset + 1)
                await trio.lowlevel.checkpoint()
        except (KafkaError, OSError) as error:
            if not self._is_led(led):
                return True  # the log belongs to somebody else's followers now
            log.error("loading the groups of %r stopped at offset %d: %s", led, offset, error)
            return False
        if self._is_led(led):
            led.loaded_to = partition.log_end_offset
            groups, seconds = len(led.shard.groups), self._clock() - started
            log.info("loaded %d groups from %r, %d offsets long, in %.3f s", groups, led, offset, seconds)
            if partition.high_watermark >= led.loaded_to:
                self._loaded(led)
            else:
                self._timers.after(OPEN_SECONDS, partial(self._open, led))
                partition.when_committed(led.loaded_to, partial(self._load_committed, led))
        return True

    def _load_committed(self, led: _Led, code: ErrorCode) -> None:
        """The followers have what was loaded, or leadership is lost, which `resign` will tell."""
        self._timers.after(0, partial(self._open, led))

    def _open(self, led: _Led) -> None:
        """Serve the groups that were loaded, unless the log has grown meanwhile."""
        if not self._is_led(led) or led.is_loaded:
            return
        if led.partition.log_end_offset == led.loaded_to:
            self._loaded(led)
            self._partitions.write_staged()
        else:
            self._load_again(led)

    def _loaded(self, led: _Led) -> None:
        led.is_loaded = True
        now = self._now()
        self._apply(led, led.shard.loaded(now))
        if led.deleted_topics:
            for result in led.shard.topics_deleted(led.deleted_topics, now):
                self._apply(led, result)
            led.deleted_topics = set()
            self._partitions.write_staged()

    async def _run_expiry(self) -> None:
        while True:
            await trio.sleep(self._config().int("offsets.retention.check.interval.ms") / 1000)
            for led in list(self._led.values()):
                for result in led.shard.expire_offsets(self._now()) if led.is_loaded else ():
                    self._apply(led, result)
                    self._partitions.write_staged()
                    await trio.lowlevel.checkpoint()
                    if not self._is_led(led):
                        break

    async def _run_topic_creation(self) -> None:
        while True:
            await self._topic_wanted.wait()
            if GROUP_METADATA_TOPIC not in self._image().topics:
                config = self._config()
                count = config.int("offsets.topic.num.partitions")
                replicas = config.int("offsets.topic.replication.factor")
                try:
                    await self._create_topic(GROUP_METADATA_TOPIC, count, replicas, offsets_topic_config(config))
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        log.warning("%s cannot be created: %s", GROUP_METADATA_TOPIC, error)
                        await trio.sleep(CREATE_RETRY_SECONDS)
            self._topic_wanted = trio.Event()

    def want_topic(self) -> None:
        """Somebody looks for a coordinator and there is no `__consumer_offsets` yet: have it created."""
        self._topic_wanted.set()

    # -- where a group lives ----------------------------------------------------------------------

    def place(self, group_id: str) -> PartitionImage | None:
        """The partition that a group lives in; None while the topic does not exist."""
        topic = self._image().topics.get(GROUP_METADATA_TOPIC)
        if topic is None or not topic.partitions:
            return None
        return topic.partitions[partition_for(group_id, len(topic.partitions))]

    def _is_led(self, led: _Led) -> bool:
        return self._led.get(led.partition.index) is led

    def _of(self, group_id: str, *, may_be_empty: bool = False) -> _Led:
        """The partition of a group. Raises KafkaError 24 (no id), 16 (led elsewhere, or no topic) or 14 (loading).

        The empty id is an old consumer's without a group; it may hold offsets but have no members.
        """
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        place = self.place(group_id)
        led = None if place is None else self._led.get(place.index)
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

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
    ) -> None:
        """Answers a list of ErrorCode, one per offset."""
        led = self._of(group_id, may_be_empty=True)
        shard = led.shard
        self._apply(
            led, shard.commit(group_id, generation, member_id, instance_id, retention_ms, offsets, token, self._now())
        )

    def fetch(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None, require_stable: bool
    ) -> list[FetchedOffset]:
        """Committed offsets of the (topic, partition)s, or of all with None."""
        led = self._of(group_id, may_be_empty=True)
        return led.shard.fetch(group_id, partitions, require_stable, self._committed_to(led))

    def _committed_to(self, led: _Led) -> int:
        """Reads tell what is in the log before this offset."""
        if self._required_acks() != -1:
            return led.appended_to if led.appended_to > led.loaded_to else led.loaded_to
        return max(led.partition.high_watermark, led.loaded_to)

    def _required_acks(self) -> int:
        return self._config().int("offsets.commit.required.acks")

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
    ) -> tuple[ErrorCode, list[ListGroupsResponse.ListedGroup]]:
        """The groups coordinated here; with error 14 if some are being loaded, which are left out."""
        code = ErrorCode.NONE
        groups: list[ListGroupsResponse.ListedGroup] = []
        for led in self._led.values():
            if led.is_loaded:
                groups.extend(led.shard.listed(states, types))
            else:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return code, groups

    # -- from a result to the answers -------------------------------------------------------------

    def _apply(self, led: _Led, result: Result) -> None:
        """Append, replay, and answer now or when committed; see `coordinator.machine`."""
        self._deliver(result.replies)
        if result.records:
            code = self._append(led, result.records)
            if code != ErrorCode.NONE:
                if result.failed is not None:
                    self._apply(led, result.failed(code, False, self._now()))
                self._arm(led)
                return
        if result.held:
            if self._required_acks() != -1:
                self._partitions.after_write(partial(self._written, led, result))
            elif led.appended_to > led.partition.high_watermark:
                self._hold(led, result)
            else:
                self._deliver(result.held)
        self._arm(led)

    def _append(self, led: _Led, records: Sequence[coordinator.Record]) -> ErrorCode:
        """Stage the records as one batch and replay them."""
        partition, wall_ms = led.partition, self._wall_ms()
        batch = build_batch(Record(0, wall_ms, key, value, []) for key, value in records)
        try:
            info = partition.append(
                batch, origin=AppendOrigin.COORDINATOR, now_ms=wall_ms, required_acks=self._required_acks()
            )
        except KafkaError as error:
            log.warning("%r refused %d records: %s", led, len(records), error)
            return error.code
        offset, committed_to = info.base_offset, partition.high_watermark
        for key, value in records:
            led.shard.replay(key, value, offset, committed_to)
            offset += 1
        led.appended_to = offset
        return ErrorCode.NONE

    def _hold(self, led: _Led, result: Result) -> None:
        due = self._clock() + self._config().int("offsets.commit.timeout.ms") / 1000
        led.held.append(_Held(led.appended_to, due, result))
        if led.commit_timer is None:
            led.commit_timer = self._timers.at(due, partial(self._commits_due, led))
        led.partition.when_committed(led.appended_to, partial(self._committed, led))

    def _committed(self, led: _Led, code: ErrorCode) -> None:
        """The high watermark moved past a write, or leadership is lost."""
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            if self._is_led(led):
                self.resign(led.partition.index)
            return
        high_watermark = led.partition.high_watermark
        while led.held and led.held[0].end_offset <= high_watermark:
            result = led.held.popleft().result
            if code == ErrorCode.NONE or result.failed is None:
                self._deliver(result.held)
            else:
                self._timers.after(0, partial(self._failed, led, result, code))

    def _written(self, led: _Led, result: Result) -> None:
        """With `offsets.commit.required.acks` 0 or 1 nobody waits for the followers."""
        if led.partition.write_error is None or result.failed is None:
            self._deliver(result.held)
        else:
            self._deliver(result.failed(ErrorCode.KAFKA_STORAGE_ERROR, True, self._now()).replies)

    def _failed(self, led: _Led, result: Result, code: ErrorCode) -> None:
        """A write is in the log, and its clients are told that it failed."""
        if result.failed is not None:
            self._apply(led, result.failed(code, True, self._now()))
            self._partitions.write_staged()

    def _commits_due(self, led: _Led) -> None:
        """Writes that took too long are answered, though they may be committed yet."""
        led.commit_timer = None
        now = self._now()
        while led.held and led.held[0].due <= now.seconds:
            result = led.held.popleft().result
            if result.failed is not None:
                self._apply(led, result.failed(ErrorCode.REQUEST_TIMED_OUT, True, now))
        if led.held and led.commit_timer is None:
            led.commit_timer = self._timers.at(led.held[0].due, partial(self._commits_due, led))
        self._partitions.write_staged()

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for token, response in replies:
            token.reply(response)

    # -- timers -----------------------------------------------------------------------------------

    def _arm(self, led: _Led) -> None:
        """Keep one timer per partition, due no later than the shard's next deadline."""
        deadline = led.shard.deadline()
        if deadline is None or not self._is_led(led):
            return
        timer = led.timer
        if timer is not None:
            if timer.callback is not None and timer.deadline <= deadline:
                return
            timer.cancel()
        led.timer = self._timers.at(deadline, partial(self._expire, led))

    def _expire(self, led: _Led) -> None:
        led.timer = None
        for _ in range(EXPIRE_PER_CALLBACK):
            now = self._now()
            deadline = led.shard.deadline()
            if deadline is None or deadline > now.seconds or not self._is_led(led):
                break
            self._apply(led, led.shard.expire(now))
        self._arm(led)
        self._partitions.write_staged()
