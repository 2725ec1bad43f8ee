"""Applies a controller's messages to this broker: lead, follow, stop, and the image of the cluster.

Messages come from the controller of another broker (`server/apis/{leader_and_isr,update_metadata,stop_replica}.py`) or
from our own (a direct call); they are applied one at a time, in order of arrival. Rejected as a whole: messages of a
controller whose epoch is below the highest seen (a deposed one), and those for an earlier registration of this broker.
A failure of a single partition is an error code of that partition.

The image (`image`) changes only by UpdateMetadata; settings of topics are read from the store when a topic is new, and
after a notification (`ClusterMember`). A notification may come while a message about the same topic waits
for the store, or between the LeaderAndIsr that makes a topic's partitions and the UpdateMetadata that brings it into
the image: what it says holds for both, whichever comes first. Source: `ReplicaManager.scala` (becomeLeaderOrFollower,
stopReplicas, maybeUpdateMetadataCache), `ZkMetadataCache.scala` (3.9).

A log that cannot be opened or made because the process lacks something (descriptors, memory), or was interrupted, is
retried every `AGAIN_S`, until a later message replaces the role (`run`). Meanwhile this broker keeps its role, unless
it is to lead and other replicas could: then the controller gets the error, and elects one of those.

Not here: the migration to KRaft, whose controllers send LeaderAndIsr of type Full.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeVar

import trio

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.logdir import StorageError
from barnabas.replication import (
    LEADER_BEING_DELETED,
    BadNode,
    BrokerImage,
    Image,
    LeaderAndIsr,
    Message,
    PartitionChange,
    PartitionImage,
    SessionExpired,
    StoppedPartition,
    StopReplica,
    Store,
    TopicImage,
    UpdateMetadata,
    apply_update,
    read_topic_configs,
    read_topics,
)
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.controller")

_AT_ONCE = 8  # logs to create or delete between two checkpoints; each takes 0.1 to 1 ms
_NO_BROKER_EPOCH = -1  # from controllers older than broker epochs

AGAIN_S = 1.0
"""The time between two attempts to open a log. Seconds."""

TopicPartition = tuple[str, int]
Codes = dict[TopicPartition, ErrorCode]
T = TypeVar("T")


class LocalReplicas(Protocol):
    """Changes of this broker's replicas (`barnabas.server.partitions.registry.Partitions`).

    All methods raise KafkaError, or OSError, for the partition.
    """

    def become_leader(
        self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str], *, is_new: bool
    ) -> object: ...

    def become_follower(
        self,
        topic: str,
        topic_id: bytes,
        image: PartitionImage,
        config: Mapping[str, str],
        leader: BrokerImage | None,
        *,
        is_new: bool,
    ) -> object: ...

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> None: ...

    async def settle_deletions(self) -> None:
        """Make the deletions of replicas stopped with `delete` durable, also against a power failure."""

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None: ...


class Receiver:
    """See the module. broker_epoch(): of our present registration; decided(topic): the topic in our own controller's
    machine, if we are controller.
    """

    def __init__(
        self,
        broker_id: int,
        partitions: LocalReplicas,
        store: Store,
        *,
        broker_epoch: Callable[[], int],
        decided: Callable[[str], TopicImage | None],
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._store = store
        self._broker_epoch = broker_epoch
        self._decided = decided
        self._image = Image()
        self._moved = trio.Event()
        self._controller_epoch = 0
        self._turn = trio.Lock()
        # Settings of topics that have changed since the present message, or the last one, arrived.
        self._just_changed: dict[str, Mapping[str, str]] = {}
        self._postponed: dict[TopicPartition, tuple[LeaderAndIsr, PartitionChange]] = {}
        self._some_postponed = Wakeup()

    async def run(self) -> None:
        """Retry, until cancelled, changes that failed for lack of resources."""
        while True:
            if not self._postponed:
                self._some_postponed.clear()
                await self._some_postponed.wait()
            await trio.sleep(AGAIN_S)
            async with self._turn:
                for message, change in list(self._postponed.values()):
                    codes = await self._lead_and_follow(replace(message, partitions=(change,)))
                    if codes[change.topic, change.partition.index] is ErrorCode.NONE:
                        log.info("%s-%d: retrying after a failed change of role", change.topic, change.partition.index)

    # -- the image ---------------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        """The latest image of the cluster; replaced as a whole."""
        return self._image

    def current_image(self) -> Image:
        """`image`, for those who look at it for each request: a property of a property takes them longer."""
        return self._image

    def replace_image(self, image: Image) -> None:
        """Replace the image, and wake tasks that wait for a new one."""
        if image is not self._image:
            self._image = image
            moved, self._moved = self._moved, trio.Event()
            moved.set()

    async def image_until(self, ready: Callable[[Image], bool]) -> None:
        """Wait until the image fulfils the condition. It is checked with every new image, and at least once."""
        await trio.lowlevel.checkpoint()
        while not ready(self._image):
            await self._moved.wait()

    def topic_config_changed(self, name: str, config: Mapping[str, str]) -> None:
        """Apply the changed settings of a topic. It need not be in the image: its partitions may exist before."""
        self._just_changed[name] = config
        topic = self._image.topics.get(name)
        if topic is not None and topic.config != config:
            self.replace_image(self._image.with_topics([replace(topic, config=config)]))
        try:
            self._partitions.config_changed(name, config)
        except Exception as error:
            contain(log, f"applying the settings of topic {name}", error)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def receive(self, message: Message) -> Codes:
        """Apply a message. Returns error codes by partition for LeaderAndIsr and StopReplica.

        Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
        """
        async with self._turn:
            if message.controller_epoch < self._controller_epoch:
                log.warning(
                    "rejected a %s of broker %d: its controller epoch %d is older than %d",
                    type(message).__name__,
                    message.controller_id,
                    message.controller_epoch,
                    self._controller_epoch,
                )
                raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
            # A higher one is of a registration whose response we have not received yet.
            if _NO_BROKER_EPOCH < message.broker_epoch < self._broker_epoch():
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
            self._controller_epoch = message.controller_epoch
            match message:
                case LeaderAndIsr():
                    message = replace(message, partitions=await self._with_ids(message.partitions))
                    return await self._lead_and_follow(message)
                case UpdateMetadata():
                    message = replace(message, partitions=await self._with_ids(message.partitions))
                    configs = await self._configs_of(message.partitions)
                    self.replace_image(apply_update(self._image, message, {**configs, **self._just_changed}))
                    return {}
                case StopReplica():
                    return await self._stop(message)

    async def _lead_and_follow(self, message: LeaderAndIsr) -> Codes:
        configs = await self._configs_of(message.partitions)
        leaders = {broker.id: broker for broker in message.leaders}
        mine = self._broker_id
        codes: Codes = {}
        # Leaders first: clients wait for them.
        ordered = [change for change in message.partitions if change.partition.leader == mine]
        ordered += [change for change in message.partitions if change.partition.leader != mine]
        for count, change in enumerate(ordered, 1):
            topic, partition = change.topic, change.partition
            where = (topic, change.topic_id, partition, self._just_changed.get(topic, configs[topic]))
            work: Callable[[], object]
            if partition.leader == mine:
                work = partial(self._partitions.become_leader, *where, is_new=change.is_new)
            else:
                leader = leaders.get(partition.leader) or self._image.brokers.get(partition.leader)
                work = partial(self._partitions.become_follower, *where, leader, is_new=change.is_new)
            codes[topic, partition.index] = self._attempt(change, partial(self._or_later, message, change, work))
            if count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # thousands of logs must not block the loop
        return codes

    def _or_later(self, message: LeaderAndIsr, change: PartitionChange, work: Callable[[], object]) -> None:
        partition, mine = change.partition, self._broker_id
        key = change.topic, partition.index
        _, waits = self._postponed.get(key, (None, None))
        is_same = waits is not None and waits.topic_id == change.topic_id
        if waits is not None and is_same and waits.partition.leader_epoch > partition.leader_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._postponed.pop(key, None)
        try:
            work()
        except StorageError as error:
            if not error.is_ours or error.errno == errno.ENAMETOOLONG:
                raise
            level = logging.DEBUG if waits is change else logging.WARNING
            log.log(level, "%s-%d: retrying every %g s: %s", *key, AGAIN_S, error.message)
            self._postponed[key] = message, change
            self._some_postponed.set()
            if partition.leader == mine and any(replica != mine for replica in partition.isr):
                raise

    async def _stop(self, message: StopReplica) -> Codes:
        codes: Codes = {}
        for count, one in enumerate(message.partitions, 1):
            self._postponed.pop((one.topic, one.index), None)
            work = partial(self._partitions.stop, one.topic, one.index, one.leader_epoch, one.delete)
            codes[one.topic, one.index] = self._attempt(one, work)
            if count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        deleted = [(one.topic, one.index) for one in message.partitions if one.delete]
        if deleted:
            # Next the topic is removed from the metadata: its directories must not reappear without it.
            try:
                await self._partitions.settle_deletions()
            except OSError as error:
                log.error("cannot delete partitions: %s", error)
                codes |= dict.fromkeys(deleted, ErrorCode.KAFKA_STORAGE_ERROR)
        return codes

    async def _with_ids(self, changes: tuple[PartitionChange, ...]) -> tuple[PartitionChange, ...]:
        """`changes` with the topics' ids, which inter-broker protocols before 2.8-IV1 do not send, though the store
        may have them. Without one a topic's id stays ZERO_UUID.
        """
        ids: dict[str, bytes] = {}
        unknown: list[str] = []
        for change in changes:
            if change.topic_id != ZERO_UUID or change.topic in ids or change.partition.leader == LEADER_BEING_DELETED:
                continue
            known = self._image.topics.get(change.topic) or self._decided(change.topic)
            ids[change.topic] = ZERO_UUID if known is None else known.topic_id
            if known is None:
                unknown.append(change.topic)
        if not ids:
            return changes
        for seen in await self._read(lambda: read_topics(self._store, unknown, self._unreadable)):
            ids[seen.name] = seen.node.topic_id or ZERO_UUID
        return tuple(
            replace(change, topic_id=ids.get(change.topic, ZERO_UUID)) if change.topic_id == ZERO_UUID else change
            for change in changes
        )

    async def _configs_of(self, changes: Sequence[PartitionChange]) -> Mapping[str, Mapping[str, str]]:
        """Settings of the topics of `changes`, by name; read from the store where the image does not have them. Those
        of `_just_changed`, which starts empty here, are newer.
        """
        self._just_changed.clear()
        configs: dict[str, Mapping[str, str]] = {}
        unknown: list[str] = []
        for change in changes:
            name = change.topic
            if name in configs:
                continue
            known = self._image.topics.get(name)
            if known is None or known.topic_id != change.topic_id:
                known = self._decided(name)
            if known is not None and known.topic_id == change.topic_id:
                configs[name] = known.config
            else:
                configs[name] = MappingProxyType({})
                unknown.append(name)
        if unknown:
            configs.update(await self._read(lambda: read_topic_configs(self._store, unknown, self._unreadable)))
        return configs

    @staticmethod
    async def _read(read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except SessionExpired:  # and with it the registration that the message was for
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH) from None

    @staticmethod
    def _attempt(what: PartitionChange | StoppedPartition, work: Callable[[], object]) -> ErrorCode:
        """Apply a change of one partition: its failure must not affect the others."""
        try:
            work()
        except KafkaError as error:
            if error.code in _ORDINARY:
                log.debug("%s: %s", what, error.code.name)
            elif error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                log.warning("%s-%d: %s", *_name(what), error.message)
            else:
                log.exception("%s failed", what)
            return error.code
        except OSError:
            log.exception("%s failed", what)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except Exception as error:
            contain(log, str(what), error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    @staticmethod
    def _unreadable(error: BadNode) -> None:
        log.error("skipping an unreadable node: %s", error)


def _name(what: PartitionChange | StoppedPartition) -> tuple[str, int]:
    return what.topic, what.partition.index if isinstance(what, PartitionChange) else what.index


_ORDINARY = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)  # an outdated message
