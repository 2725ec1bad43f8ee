"""All partitions of this broker, by name and by topic id: their roles, and the round's write.

The controller's messages say which to lead, to follow, or to stop (`become_leader`, `become_follower`, `stop`);
handlers look them up. `write_staged` ends a round: every partition that staged something writes once, then waiters
are notified, then the callbacks of `after_write` answer the Produce requests of the round.

Other parts are notified of changes of role from here (`barnabas.server.partitions.roles`).

A log directory that fails takes its partitions offline (`dir_failed`): look-ups and the controller get
KAFKA_STORAGE_ERROR until the broker is restarted, and the other directories continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.allowance import Allowance
from barnabas.logdir import LogConfig, LogDir, LogDirs, PartitionLog, Promoted, StorageError
from barnabas.replication import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerImage,
    Image,
    PartitionImage,
    Proposal,
)
from barnabas.server.partitions.copy_throttle import LEADER, CopyThrottle
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.roles import CoordinatorRoles, RoleListeners
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload, inline

log = logging.getLogger("barnabas.partitions")

EPOCH_DURING_DELETE = -2
NO_EPOCH = -1
"""Leader epochs of StopReplica that are not compared: the topic is being deleted; an old controller sent none."""


SETTLE_TRIES = 5
SETTLE_AGAIN_S = 0.2
"""How often, and after how many seconds, to retry a sync that failed for lack of descriptors."""


class Partitions:
    """See the module. `log_config(topic_config)` turns a topic's own settings into its effective `LogConfig`;
    `now()`: seconds of trio's clock. `wall_ms()`: the wall clock. `lag_ms()`: `replica.lag.time.max.ms`. offload: runs
    the syncs of directories.

    Part of `barnabas.server.partitions.partition.PartitionHost`.
    """

    def __init__(
        self,
        broker_id: int,
        log_dirs: LogDirs,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        current_image: Callable[[], Image],
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        lag_ms: Callable[[], int] = lambda: 30_000,
        offload: Offload = inline,
    ) -> None:
        self.broker_id = broker_id
        self.log_dirs = log_dirs
        self.now = now
        self.wall_ms = wall_ms
        self._lag_ms = lag_ms
        self._log_config = log_config
        self._image = current_image
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._indexes: dict[str, set[int]] = {}
        self._offline: dict[tuple[str, int], bytes] = {}
        self._offline_ids: set[tuple[bytes, int]] = set()
        self._listeners = RoleListeners()
        self.leader_throttle = CopyThrottle(LEADER, broker_id, current_image)
        self._flusher: Callable[[Partition], None] = self._flush_here
        self._offload = offload
        self._unsettled: dict[LogDir, None] = {}  # with deletions that are not synced
        # With the bytes that were written, when they are.
        self._staged: dict[Partition, int | None] = {}
        self._failed: dict[Partition, StorageError] = {}
        self._refusing: list[Partition] = []
        self._is_writing = False
        self.allowance = Allowance()
        """The allowance of work for the batches of a round."""
        self._after_write: list[Callable[[], None]] = []

    def listen(self, listeners: RoleListeners) -> None:
        """Set the listeners of roles; before any partition has one."""
        self._listeners = listeners

    @contextmanager
    def flushing_by(self, flusher: Callable[[Partition], None]) -> Iterator[None]:
        """While the context is open `flusher` syncs logs, in a thread (`barnabas.server.storage.flushing`); otherwise
        that happens inline.
        """
        before, self._flusher = self._flusher, flusher
        try:
            yield
        finally:
            self._flusher = before

    # -- look-up -----------------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (it is not on this broker),
        KAFKA_STORAGE_ERROR (its log directory has failed).
        """
        partition = self._by_name.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        known = self._image().topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Raises KafkaError UNKNOWN_TOPIC_ID (no such topic id), and as `get`."""
        partition = self._by_id.get((topic_id, index))
        if partition is not None:
            return partition
        if (topic_id, index) in self._offline_ids:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        known = self._image().topic_by_id(topic_id)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if 0 <= index < len(known.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    @property
    def offline_count(self) -> int:
        """How many partitions of this broker are in log directories that have failed."""
        return len(self._offline)

    def is_offline(self, topic: str, index: int) -> bool:
        """Its log directory has failed."""
        return (topic, index) in self._offline

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    # -- roles, set by the controller --------------------------------------------------------------------------------

    def become_leader(
        self,
        topic: str,
        topic_id: bytes,
        image: PartitionImage,
        config: Mapping[str, str],
        *,
        is_new: bool = True,
    ) -> Partition:
        """Lead a partition; its log is opened, or created when there is none. is_new: the controller has just
        created it, so it cannot be in a log directory that is offline.

        Raises KafkaError for this partition: STALE_CONTROLLER_EPOCH (the leader epoch is not newer than ours),
        UNKNOWN_TOPIC_OR_PARTITION (this broker is no replica), INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR.
        """
        partition = self._admit(topic, topic_id, image, config, is_new)
        if partition is None:
            return self._by_name[topic, image.index]
        self._listeners.followers.unfollow(partition)
        self._write_now(partition)
        partition.lead(image)
        self._resume_move(partition)
        coordinators = self._coordinators(topic)
        if coordinators is not None:
            coordinators.lead(partition)
        return partition

    def become_follower(
        self,
        topic: str,
        topic_id: bytes,
        image: PartitionImage,
        config: Mapping[str, str],
        leader: BrokerImage | None,
        *,
        is_new: bool = True,
    ) -> Partition:
        """Follow the leader that `image` names; `leader` is its address; None: unknown, or there is none, and
        nothing is fetched. Raises KafkaError as `become_leader`.
        """
        partition = self._admit(topic, topic_id, image, config, is_new)
        if partition is None:
            return self._by_name[topic, image.index]
        self._write_now(partition)
        led = partition.is_leader
        partition.follow(image)
        self._resume_move(partition)
        coordinators = self._coordinators(topic)
        if led and coordinators is not None:
            coordinators.resign(partition.index)
        if leader is None:
            self._listeners.followers.unfollow(partition)
        else:
            self._listeners.followers.follow(partition, leader)
        return partition

    def _coordinators(self, topic: str) -> CoordinatorRoles | None:
        """The coordinators of a topic of this name, usually none."""
        if topic == GROUP_METADATA_TOPIC:
            return self._listeners.groups
        if topic == SHARE_GROUP_STATE_TOPIC:
            return self._listeners.share_states
        return self._listeners.transactions if topic == TRANSACTION_STATE_TOPIC else None

    def _admit(
        self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str], is_new: bool
    ) -> Partition | None:
        """The partition, opened or created if necessary; None if there is no change of role. Raises KafkaError."""
        if (topic, image.index) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory is offline")
        partition = self._by_name.get((topic, image.index))
        if partition is not None:
            known = partition.topic_id
            if known != topic_id and any(known) and any(topic_id):
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            if image.leader_epoch <= partition.leader_epoch:
                if image.leader_epoch == partition.leader_epoch and not any(known) and any(topic_id):
                    self._assign_topic_id(partition, topic_id)
                    return None
                raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if self.broker_id not in image.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition is None:
            return self._open(topic, topic_id, image.index, config, is_new)
        if known != topic_id and any(topic_id):
            self._assign_topic_id(partition, topic_id)
        # The answer to our own proposal is newer than this message.
        return partition if image.partition_epoch >= partition.partition_epoch else None

    def _open(self, topic: str, topic_id: bytes, index: int, config: Mapping[str, str], is_new: bool) -> Partition:
        try:
            partition_log = self.log_dirs.open_or_create(
                topic,
                index,
                topic_id if any(topic_id) else None,
                self._log_config(config),
                is_new=is_new,
                is_known=True,
            )
        except StorageError as error:
            if not (is_new or error.is_ours):
                self._note_offline(topic, index, topic_id)
            raise
        except KafkaError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR and not is_new:
                self._note_offline(topic, index, topic_id)
            raise
        high_watermark = self.log_dirs.high_watermark(topic, index)
        partition = Partition(self, topic, index, topic_id, partition_log, high_watermark)
        partition.future = self._found_copy(topic, index, partition_log)
        self._by_name[topic, index] = partition
        self._by_id[topic_id, index] = partition
        self._indexes.setdefault(topic, set()).add(index)
        return partition

    def _found_copy(self, topic: str, index: int, partition_log: PartitionLog) -> PartitionLog | None:
        """The copy of a move that began before the broker was restarted, unless it is of an earlier topic."""
        copy = self.log_dirs.future(topic, index)
        if copy is None or copy.topic_id == partition_log.topic_id or not copy.topic_id:
            return copy
        self.log_dirs.drop_future(topic, index)
        return None

    def _assign_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        """Set the id of a topic that had none."""
        self.log_dirs.open_or_create(partition.topic, partition.index, topic_id, partition.log.config)
        self._by_id.pop((partition.topic_id, partition.index), None)
        partition.topic_id = topic_id
        self._by_id[topic_id, partition.index] = partition

    def _write_now(self, partition: Partition) -> None:
        """Write what the round staged in the old role. Raises `StorageError` if the log cannot be used any more."""
        if partition in self._staged:
            del self._staged[partition]
            try:
                partition.write()
            except StorageError as error:
                if partition.log.failure is not None:
                    self.storage_failed(partition, error)
                    raise
                # What was staged is lost, and its callers get the error; the role may change.
                log.warning("%s", error)

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> None:
        """Stop following, and with `delete` remove the log as well, also one without a role.

        Without `delete` a leader continues to lead until there is another one, as in Apache Kafka. Raises KafkaError
        FENCED_LEADER_EPOCH if `leader_epoch` is older than ours (-2 and -1 are not compared), KAFKA_STORAGE_ERROR.
        """
        if (topic, index) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory is offline")
        partition = self._by_name.get((topic, index))
        if partition is not None:
            if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < partition.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            self._listeners.followers.unfollow(partition)
        if delete:
            self.delete(topic, index)

    def delete(self, topic: str, index: int) -> None:
        """Stop serving a partition and mark its directory for removal. Not durable before `settle_deletions`."""
        home = self.log_dirs.home(topic, index)
        if home is not None:
            self._unsettled[home] = None
        partition = self._forget(topic, index)
        if partition is None:
            self.log_dirs.delete(topic, index)
            return
        last = topic not in self._indexes
        image = self._image()
        known = image.topics.get(topic)
        # A replica that moved away, or a topic that is gone?
        moved = known is not None and known.topic_id == partition.topic_id and index < len(known.partitions)
        coordinators = self._coordinators(topic)
        if coordinators is not None:
            coordinators.resign(index)
        elif last and not moved:
            self._listeners.groups.topics_deleted([topic])
            if any(partition.topic_id):
                self._listeners.share_states.topics_deleted([partition.topic_id])
        self._listeners.followers.unfollow(partition)
        partition.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER if moved else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.log_dirs.delete(topic, index)

    async def settle_deletions(self) -> None:
        """Make deletions durable against a power failure: one sync for each directory. Raises `StorageError`, after all
        others are done.
        """
        unsettled, self._unsettled = self._unsettled, {}
        failed: StorageError | None = None
        for each in unsettled:
            for left in reversed(range(SETTLE_TRIES)):
                if each.failure is not None:
                    break
                try:
                    await self._offload(each.sync_names)
                    break
                except StorageError as error:
                    if left and error.is_ours:
                        await trio.sleep(SETTLE_AGAIN_S)
                        continue
                    self._unsettled[each] = None
                    failed = error
                    break
        if failed is not None:
            raise failed

    def _forget(self, topic: str, index: int) -> Partition | None:
        """Remove a partition from the tables: it is not found any more, and nothing of it is written, which
        `Partition.outcome_of` reports.
        """
        partition = self._by_name.pop((topic, index), None)
        if partition is None:
            return None
        self._by_id.pop((partition.topic_id, index), None)
        indexes = self._indexes[topic]
        indexes.discard(index)
        if not indexes:
            del self._indexes[topic]
        self._staged.pop(partition, None)
        partition.future = None
        return partition

    # -- log directories ---------------------------------------------------------------------------------------------

    def dir_failed(self, failed: LogDir) -> None:
        """Take a failed log directory offline: waiters of its partitions are notified, and moves to or from it end.
        Calling it again does nothing.
        """
        lost = [key for key in failed.logs if key in self._by_name]
        for key in failed.futures:
            partition = self._by_name.get(key)
            if partition is not None:
                partition.future = None
        failed.go_offline()
        moved = 0
        for topic, index in lost:
            if self._created_elsewhere(self._by_name[topic, index]):
                moved += 1
                continue
            partition = self._forget(topic, index)
            assert partition is not None
            self._note_offline(topic, index, partition.topic_id)
            try:
                coordinators = self._coordinators(topic)
                if coordinators is not None:
                    coordinators.resign(index)
                self._listeners.followers.unfollow(partition)
                partition.resign(ErrorCode.KAFKA_STORAGE_ERROR)
            except Exception as error:
                contain(log, f"taking {partition} offline", error)
        if lost:
            log.error("log directory %s is offline, with %d partitions", failed.path, len(lost) - moved)

    def _created_elsewhere(self, partition: Partition) -> bool:
        """Whether a partition whose log has nothing on the failed disk yet, nor in memory, has one in another directory
        now, as if it had been created there. It keeps its role.
        """
        old = partition.log
        if old.is_made or old.next_offset != old.log_end_offset or partition.write_error or partition.future:
            return False
        topic_id = partition.topic_id if any(partition.topic_id) else None
        try:
            created = self.log_dirs.open_or_create(partition.topic, partition.index, topic_id, old.config)
        except KafkaError as error:
            log.warning("%s-%d: %s", partition.topic, partition.index, error.message)
            return False
        if old.latest_epoch >= 0:
            created.assign_leader_epoch(old.latest_epoch)
        partition.log = created
        return True

    def _note_offline(self, topic: str, index: int, topic_id: bytes) -> None:
        self._offline[topic, index] = topic_id
        self._offline_ids.add((topic_id, index))

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """Reading or writing a partition failed: take its directory offline."""
        home = self.log_dirs.home(partition.topic, partition.index)
        if home is not None and home.logs[partition.topic, partition.index] is partition.log:
            home.storage_failed(error)
            self.dir_failed(home)

    def _resume_move(self, partition: Partition) -> None:
        if partition.future is not None:
            self._listeners.moves.resume(partition)

    def move(self, partition: Partition, target: LogDir) -> None:
        """Copy a partition to another directory, and serve it from there when that is done; or cancel a move, when it
        is there already. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        topic, index = partition.topic, partition.index
        on_the_way_to = self.log_dirs.future_home(topic, index)
        if on_the_way_to is not None and on_the_way_to is not target:
            partition.future = None
            self.log_dirs.drop_future(topic, index)
        if self.log_dirs.home(topic, index) is not target and partition.future is None:
            if self.log_dirs.offline:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "there may be a copy in a log directory that is offline"
                )
            partition.future = self.log_dirs.create_future(topic, index, target)
        self._resume_move(partition)

    def promote(self, partition: Partition) -> Promoted | None:
        """Serve the complete copy from now on; None if requests wait for a flush of the original. Raises
        `StorageError`.
        """
        self._write_now(partition)
        copy, original = partition.future, partition.log
        if copy is None or partition.held_at is not None or copy.log_end_offset != original.log_end_offset:
            return None
        copy.delete_records(max(original.log_start_offset, copy.log_start_offset), copy.log_end_offset)
        promoted = self.log_dirs.promote(partition.topic, partition.index)
        partition.log, partition.future = promoted.log, None
        if original.latest_epoch > copy.latest_epoch:
            copy.assign_leader_epoch(original.latest_epoch)
        return promoted

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None:
        """A topic's settings changed (or the broker's defaults for them)."""
        effective = self._log_config(config)
        for index in self._indexes.get(topic, ()):
            partition = self._by_name[topic, index]
            partition.log.config = effective
            if partition.future is not None:
                partition.future.config = effective

    def end(self) -> None:
        """The broker stops, and takes no more requests: answer all that wait. Fetches get the records there are;
        requests that wait for a commit, or for a group, get an error that has the client find the new leader.
        """
        self.write_staged()
        for partition in self:
            for waiter in partition.waiters:
                try:
                    waiter.answer_now()
                except Exception as error:
                    contain(log, "answering a waiting fetch", error, waiter)
        self._listeners.groups.resign_all()
        self._listeners.transactions.resign_all()
        self._listeners.share_states.resign_all()
        for partition in self:
            partition.resign()

    # -- what partitions ask of their broker -------------------------------------------------------------------------

    @property
    def lag_s(self) -> float:
        return self._lag_ms() / 1000

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._image().brokers

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._listeners.isr.submit(partition, proposal)

    def flush(self, partition: Partition) -> None:
        self._flusher(partition)

    @staticmethod
    def _flush_here(partition: Partition) -> None:
        error = None
        try:
            partition.log.flush()
        except StorageError as caught:
            error = caught
        partition.flushed(error)

    # -- the round's write -------------------------------------------------------------------------------------------

    def stage(self, partition: Partition) -> None:
        self._staged[partition] = None

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call `callback` when everything staged so far was written, or has failed (see `Partition.outcome_of`)."""
        self._after_write.append(callback)

    def write_staged(self) -> None:
        """End of a round: one write per partition that staged something, then the waiters, then the callbacks."""
        self.allowance.renew()
        if not (self._staged or self._after_write or self._failed or self._refusing):
            return
        was_writing, self._is_writing = self._is_writing, True
        try:
            while self._staged or self._after_write or self._failed:
                # What callbacks stage meanwhile is written in the next pass.
                staged, self._staged = self._staged, {}
                callbacks, self._after_write = self._after_write, []
                for partition in staged:
                    try:
                        staged[partition] = partition.write_quietly()
                    except StorageError:
                        pass  # the partition has noted it (`write_failed`)
                for partition, added_bytes in staged.items():
                    if added_bytes is not None:
                        try:
                            partition.announce(added_bytes)
                        except Exception as error:
                            contain(log, f"notifying waiters of a write to {partition}", error)
                if self._failed:
                    self._deal_with_failures()
                for callback in callbacks:
                    try:
                        callback()
                    except Exception as error:
                        contain(log, "a callback that waited for the round's write", error, callback)
        finally:
            self._is_writing = was_writing
        if self._refusing and not was_writing:
            # All outcomes of lost appends were read: their offsets may be assigned again.
            refusing, self._refusing = self._refusing, []
            for partition in refusing:
                partition.write_error = None

    def write_failed(self, partition: Partition, error: StorageError) -> None:
        self._failed[partition] = error
        if error.__cause__ is not None and not isinstance(error.__cause__, (OSError, KafkaError)):
            contain(log, f"writing {partition}", error.__cause__)  # a fault of ours

    def _deal_with_failures(self) -> None:
        """Take failed directories offline. A log that can still be used has lost what was staged: coordinators have
        replayed it, and must be notified before the next request.
        """
        failed, self._failed = self._failed, {}
        for partition, error in failed.items():
            if partition.log.failure is not None:
                self.storage_failed(partition, error)
                continue
            log.error("%s-%d: %s", partition.topic, partition.index, error)
            self._refusing.append(partition)
            coordinators = self._coordinators(partition.topic)
            if coordinators is not None:
                coordinators.write_failed(partition.index)
