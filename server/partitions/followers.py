"""Fetching from leaders: one task and one connection per leader broker and fetcher number.

`Partitions` says which leaders to follow (`follow`, `unfollow`; both act immediately and never wait for a request in
flight). `barnabas.replication.Fetcher` decides what to fetch and what answers mean; here are the tasks, the
connections, the appends and truncations. A partition's fetcher is chosen by hash among `num.replica.fetchers` per
leader, so that a slow partition delays only others of its fetcher.

A leader may hold a Fetch for `replica.fetch.wait.max.ms` while there is nothing to send. A partition that is added
meanwhile does not wait for that: unless the answer comes within `GRACE_S` the request is abandoned with its connection,
and all partitions are fetched on a new one. So a new topic, or a new leader, has its in-sync replicas immediately
(Apache Kafka waits).

A fetcher without partitions is stopped, and its connection closed. A leader that returns at another address, or as a
new process, is fetched from there immediately. Errors of a leader are logged when they begin and when they end.

Throttles (KIP-73): `follower.replication.throttled.rate` in bytes per second for the topics' `follower.replication.
throttled.replicas`; replicas that are in sync are never throttled.

While the process lacks descriptors or memory a partition pauses and retries: the broker leaves the ISR and rejoins it
by itself. Any failure of the disk, a full one among them, takes the log directory offline
(`Partitions.dir_failed`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.coordinator import java_string_hash
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest
from barnabas.logdir import StorageError, UnexpectedOffset
from barnabas.replication import BrokerImage, Endpoint, Image
from barnabas.replication.replica.fetcher import Fetcher
from barnabas.replication.replica.follower import Append, Ask, Do, FetcherSettings, FollowerAction, Truncate, Wait
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.partitions.copy_throttle import FOLLOWER, CopyThrottle
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.wakeup import Wakeup

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.partition import Partition

log = logging.getLogger("barnabas.followers")

Key = tuple[str, int]

GRACE_S = 0.03
SHORTEST_REST_S = 0.01
"""The shortest backoff: `replica.fetch.backoff.ms` may be 0, which must not become a busy loop."""
YIELD_BYTES = 1 << 20
"""Bytes, or partitions, to append before yielding to other tasks."""
YIELD_PARTITIONS = 64


class LocalLog:
    """A partition's log as `replication` sees it."""

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    @property
    def log_start_offset(self) -> int:
        return self.partition.log.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.log.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.partition.log.end_offset_for_epoch(epoch)


class Followers:
    """See the module. connect: opens streams to other brokers. broker_epoch: of this broker's registration."""

    def __init__(
        self,
        broker_id: int,
        connect: Connect,
        *,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
        broker_epoch: Callable[[], int],
        offload: Offload,
    ) -> None:
        self.broker_id = broker_id
        self.connect = connect
        self.offload = offload
        self.broker_epoch = broker_epoch
        self.throttle = CopyThrottle(FOLLOWER, broker_id, current_image)
        self._current_config = current_config
        self._current_image = current_image
        self._config: BrokerConfig | None = None
        self._fetcher_count = 1
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._followed: dict[Key, tuple[Partition, BrokerImage, LeaderFetcher]] = {}
        self._nursery: trio.Nursery | None = None
        self._idle = Wakeup()

    async def run(self) -> None:
        """Fetch until cancelled; partitions that were followed before are fetched from now on."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for fetcher in self._fetchers.values():
                    nursery.start_soon(fetcher.run)
                while True:
                    await self._idle.wait()
                    self._end_idle()
                    await trio.lowlevel.checkpoint()
            finally:
                self._nursery = None

    def follow(self, partition: Partition, leader: BrokerImage) -> None:
        """Fetch `partition` from `leader` with the partition's leader epoch, instead of from any other."""
        self.look_at_config()
        key = (partition.topic, partition.index)
        place = (leader.id, self._number_of(key))
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = self._fetchers[place] = LeaderFetcher(self, self._current_config(), leader.id, place[1])
            if self._nursery is not None:
                self._nursery.start_soon(fetcher.run)
        known = self._followed.get(key)
        if known is not None and known[2] is not fetcher:
            self._leave(key, known[2])
        fetcher.reach(leader, leader.endpoint(self._current_config().inter_broker_listener))
        fetcher.add(partition)
        self._followed[key] = (partition, leader, fetcher)

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching it; nothing is appended to it from now on."""
        known = self._followed.pop((partition.topic, partition.index), None)
        if known is not None:
            self._leave((partition.topic, partition.index), known[2])

    def _leave(self, key: Key, fetcher: LeaderFetcher) -> None:
        fetcher.remove(key)
        if not fetcher.machine.partitions:
            self._idle.set()

    def _end_idle(self) -> None:
        for place, fetcher in list(self._fetchers.items()):
            if not fetcher.machine.partitions:
                fetcher.end()
                del self._fetchers[place]

    def _number_of(self, key: Key) -> int:
        hashed = (31 * java_string_hash(key[0]) + key[1]) & 0xFFFFFFFF
        if hashed & 0x80000000:
            hashed = (1 << 32) - hashed & 0x7FFFFFFF
        return hashed % self._fetcher_count

    # -- settings ----------------------------------------------------------------------------------------------------

    def look_at_config(self) -> None:
        """Apply settings that changed while the broker runs."""
        config = self._current_config()
        if config is self._config:
            return
        self._config = config
        self.throttle.refresh(config)
        count = max(config.get_int("num.replica.fetchers"), 1)
        if count != self._fetcher_count:
            self._fetcher_count = count
            for partition, leader, _ in list(self._followed.values()):
                self.follow(partition, leader)

    def is_throttled(self, key: Key) -> bool:
        """The topic's settings name the replica on this broker as one to be throttled."""
        return self.throttle.covers(*key)

    def held_back(self, now: float) -> Callable[[Key], bool] | None:
        """The partitions that are throttled at the moment, None for none."""
        return self.is_throttled if self.throttle.exceeded(now) else None


class LeaderFetcher:
    """One fetcher: a task, a connection to one leader, the partitions it fetches. `number`: which of the fetchers."""

    def __init__(self, owner: Followers, config: BrokerConfig, leader_id: int, number: int) -> None:
        self._owner = owner
        self._leader_id = leader_id
        self._leader: BrokerImage | None = None
        self._endpoint: Endpoint | None = None
        self.machine = Fetcher(_settings(config, owner.broker_id))
        self._connection = PeerConnection(
            owner.connect,
            f"broker-{owner.broker_id}-fetcher-{number}",
            config.get_int("replica.socket.timeout.ms") / 1000,
        )
        self._life = trio.CancelScope()
        self._asking: trio.CancelScope | None = None
        self._fetching = False
        self._gave_up = float("-inf")
        self._wake = Wakeup()
        self._in_trouble = False

    def __repr__(self) -> str:
        return f"LeaderFetcher({self._leader_id}, {len(self.machine.partitions)} partitions)"

    # -- from the owner ----------------------------------------------------------------------------------------------

    def reach(self, leader: BrokerImage, endpoint: Endpoint | None) -> None:
        """Set the leader's endpoint. Requests to another one, or to an earlier process, are cancelled."""
        known = self._leader
        moved = known is not None and (endpoint != self._endpoint or leader.epoch > known.epoch >= 0)
        if moved and self._asking is not None:
            self._asking.cancel()
        if known is None or leader.epoch >= known.epoch or endpoint != self._endpoint:
            self._leader = leader
        self._endpoint = endpoint

    def add(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        known = self.machine.partitions.get(key)
        local: LocalLog | None = None
        if known is not None and isinstance(known.log, LocalLog) and known.log.partition is partition:
            local = known.log
        if self.machine.add(key, partition.topic_id, partition.leader_epoch, local or LocalLog(partition)) is not known:
            self._hurry()
        self._wake.set()

    def _hurry(self) -> None:
        """Shorten the wait for a Fetch in flight, without replacing one connection after the other."""
        wait_s = self.machine.settings.max_wait_ms / 1000
        now = trio.current_time()
        if self._asking is not None and self._fetching and now >= self._gave_up + wait_s:
            self._asking.deadline = min(self._asking.deadline, now + GRACE_S)

    def remove(self, key: Key) -> None:
        self.machine.remove(key)
        self._wake.set()

    def end(self) -> None:
        self._life.cancel()

    # -- the task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch and append until `end`."""
        try:
            with self._life:
                while True:
                    try:
                        await self._step()
                    except Exception:
                        log.exception("fetching from broker %d failed", self._leader_id)
                        self.machine.session.lost()
                        await trio.sleep(self.machine.settings.backoff_s)
        finally:
            await self._connection.close()

    async def _step(self) -> None:
        self._owner.look_at_config()
        if self.machine.without_id:
            self._look_for_ids()
        now = trio.current_time()
        step = self.machine.next(now, self._owner.broker_epoch(), self._owner.held_back(now))
        if isinstance(step, Ask):
            await self._ask(step)
        elif isinstance(step, Do):
            await self._carry_out(step.actions)
            await trio.lowlevel.checkpoint()
        else:
            await self._wait(step)

    def _look_for_ids(self) -> None:
        """Look up ids of topics that had none: they may have got one."""
        for key, followed in list(self.machine.partitions.items()):
            assert isinstance(followed.log, LocalLog)
            topic_id = followed.log.partition.topic_id
            if topic_id != followed.topic_id:
                self.machine.add(key, topic_id, followed.leader_epoch, followed.log)

    async def _wait(self, step: Wait) -> None:
        self._wake.clear()
        with trio.move_on_at(float("inf") if step.until is None else step.until):
            await self._wake.wait()

    async def _ask(self, ask: Ask) -> None:
        self._fetching = isinstance(ask.request, FetchRequest)
        with trio.CancelScope() as asking:
            self._asking = asking
            try:
                if self._endpoint is None:
                    raise PeerError(f"broker {self._leader_id} has no inter-broker listener")
                response = await self._connection.ask(self._endpoint, ask.request, ask.version)
            except PeerError as error:
                self._trouble(error)
                self.machine.unanswered(ask, trio.current_time())
                await trio.lowlevel.checkpoint()
                return
            finally:
                self._asking = None
        if asking.cancelled_caught:
            self._gave_up = trio.current_time()
            self.machine.unanswered(ask, trio.current_time(), rest=False)
            return
        if self._in_trouble:
            self._in_trouble = False
            log.info("resumed fetching from broker %d", self._leader_id)
        await self._carry_out(self.machine.answered(ask, response, trio.current_time()))

    def _trouble(self, error: PeerError) -> None:
        level = logging.DEBUG if self._in_trouble else logging.WARNING
        log.log(level, "fetching from broker %d: %s", self._leader_id, error)
        self._in_trouble = True

    async def _carry_out(self, actions: list[FollowerAction]) -> None:
        size = 0
        for number, action in enumerate(actions, 1):
            # Other tasks ran meanwhile, and may have removed the partition.
            if self.machine.is_current(action.partition):
                size += self._do(action)
                if size >= YIELD_BYTES or number % YIELD_PARTITIONS == 0:
                    size = 0
                    await trio.lowlevel.checkpoint()
        due = [
            action.partition.log.partition
            for action in actions
            if isinstance(action, Append)
            and isinstance(action.partition.log, LocalLog)
            and action.partition.log.partition.log.flush_due
        ]
        while due:
            # `flush.messages`: before the next Fetch, whose offset acknowledges it to the leader.
            due = await self._owner.offload(_flush, due)
            if due:
                await trio.sleep(self.machine.settings.backoff_s)

    def _do(self, action: FollowerAction) -> int:
        """Carry one action out; returns its cost, in bytes appended."""
        machine = self.machine
        followed = action.partition
        now = trio.current_time()
        assert isinstance(followed.log, LocalLog)
        partition = followed.log.partition
        size = 0
        try:
            if isinstance(action, Append):
                size = len(action.records) if action.records is not None else 0
                self._append(partition, action)
                if size and self._owner.is_throttled(followed.key):
                    self._owner.throttle.record(size, now)
            elif isinstance(action, Truncate):
                if action.offset < partition.high_watermark:
                    log.warning(
                        "%s-%d: truncating to %d, below the high watermark %d",
                        *followed.key,
                        action.offset,
                        partition.high_watermark,
                    )
                if action.offset < partition.log_end_offset:
                    size = YIELD_BYTES  # it syncs files
                partition.truncate_to(action.offset)
            else:
                size = YIELD_BYTES
                partition.restart_at(action.offset)
        except StorageError as error:
            self._not_done(action, error, now, rest=error.is_ours)
        except KafkaError as error:
            self._not_done(action, error, now, rest=False)
        except Exception:
            # Our error, not the leader's; other partitions continue.
            log.exception("%s-%d: cannot apply the leader's records, no longer fetching", *followed.key)
            machine.not_done(action, ErrorCode.UNKNOWN_SERVER_ERROR, now)
        else:
            machine.done(action, now)
        return size

    def _not_done(self, action: FollowerAction, error: KafkaError, now: float, *, rest: bool) -> None:
        log.warning(
            "%s-%d at offset %d: invalid response of broker %d: %s",
            *action.partition.key,
            action.partition.fetch_offset,
            self._leader_id,
            error.message or error.code.name,
        )
        self.machine.not_done(action, error.code, now, rest=rest)

    @staticmethod
    def _append(partition: Partition, action: Append) -> None:
        records = memoryview(action.records if action.records is not None else b"")
        epoch = action.partition.leader_epoch
        try:
            partition.append_as_follower(records, epoch, action.high_watermark, action.log_start_offset)
        except UnexpectedOffset as error:
            end = partition.log_end_offset
            if not (partition.log_start_offset == end and error.first_offset < end <= error.last_offset):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            # The leader's log starts inside this batch (DeleteRecords): it is the first one available.
            partition.restart_at(error.first_offset)
            partition.append_as_follower(records, epoch, action.high_watermark, action.log_start_offset)


def _flush(partitions: list[Partition]) -> list[Partition]:
    """Flush in a thread. Returns partitions to retry later; one that cannot be flushed takes no more records."""
    later = []
    for partition in partitions:
        if partition.write_error is None:
            try:
                partition.log.flush()
            except StorageError as error:
                log.error("%s", error)
                if error.is_ours:
                    later.append(partition)
                else:
                    partition.write_error = error
    return later


def _settings(config: BrokerConfig, broker_id: int) -> FetcherSettings:
    protocol = config.inter_broker_protocol
    return FetcherSettings(
        broker_id=broker_id,
        fetch_version=protocol.version(ApiKey.FETCH),
        list_offsets_version=protocol.version(ApiKey.LIST_OFFSETS),
        epoch_version=protocol.version(ApiKey.OFFSET_FOR_LEADER_EPOCH),
        truncates_on_fetch=protocol.truncates_on_fetch,
        max_wait_ms=config.get_int("replica.fetch.wait.max.ms"),
        min_bytes=config.get_int("replica.fetch.min.bytes"),
        max_bytes=config.get_int("replica.fetch.response.max.bytes"),
        partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
        backoff_s=max(config.get_int("replica.fetch.backoff.ms") / 1000, SHORTEST_REST_S),
    )
