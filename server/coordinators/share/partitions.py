"""Share partitions of this broker: one `barnabas.coordinator.share.SharePartition` for each group and partition that it
leads, made when a member first comes, forgotten when the last sessions of its group have given back what they had.

    request → SharePartitions.of → LedShare.acquire, acknowledge, release → replies, effects

What a share partition stores and reads of its store goes through the persister; answers come when that is done. A share
partition ends with the leadership, of which it hears as whoever waits for records does: the next request gets a new
one, or is sent to another broker. Locks that expire do so by the deadline of the machine.

Whoever waits for records (`Waiting`) is woken when there may be some: new ones, given back, or not to come. None is
woken while another operation is under way, but at the end of a write, all of the group's at once, in their order.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import trio

from barnabas.coordinator import Result
from barnabas.coordinator.share import (
    Acknowledgement,
    Acquirable,
    Acquired,
    PartitionState,
    ReadState,
    ResolveStart,
    ShareKey,
    SharePartition,
    ShareSession,
    ShareSessions,
    ShareSettings,
    StateRead,
    Stored,
    Summary,
    Wanted,
    WriteState,
)
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records import magic_of, read_header
from barnabas.logdir import FileSlice, LongBatch
from barnabas.server.cluster.log_ends import LogEnds
from barnabas.server.config import share_groups
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.share_groups import Reading
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.share.log_reading import read_for_share
from barnabas.server.coordinators.share.persister import SharePersister
from barnabas.server.coordinators.share.state_wire import Read, Summarize
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.timers import Timer
from barnabas.server.runtime.turns import Steps

log = logging.getLogger("barnabas.groups")

ENDS_S: Final = 3.0
"""How long the leaders of partitions may take to say where they end."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_GIVEN_BACK_AT_ONCE: Final = 50
"""Partitions of which a member's records are given back in one step: 5 ms."""
_NOT_HERE_COST: Final = 0.01
"""Of a partition that the group does not have here, beside one that it has. Sessions may have very many of these, and
what they leave is not to pile up.
"""
_GIVE_BACK_PAUSE_S: Final = 0.001
_GIVE_BACK_UNITS: Final = 30
"""The same in turns (`barnabas.server.runtime.turns`)."""
_MemberKey = tuple[str, str]
"""Group id and member id."""
_ABORTED_AT_ONCE: Final = 100
"""How often a request reads on when all that it found was aborted."""


class Waiting(Protocol):
    """Waits for records of share partitions."""

    def wake(self, led: LedShare) -> None:
        """There may be some of this one, or an error."""

    def answer_now(self) -> None:
        """The broker stops."""


class Got(NamedTuple):
    """What a member has acquired, and the batches of the log that it is in."""

    records: FileSlice
    acquired: Sequence[Acquired]


class _InForce(NamedTuple):
    """What a group's settings come to, as long as those of broker and group are the same objects: it is asked for
    several times with each share partition of a request.
    """

    config: BrokerConfig
    stored: Mapping[str, str]
    settings: ShareSettings
    reading: Reading


class LedShare:
    """One share partition. `partition`: of the topic, which this broker leads in the machine's epoch. It is a
    `ProgressWaiter` of it.
    """

    def __init__(self, all_of: SharePartitions, key: ShareKey, partition: Partition) -> None:
        self._all = all_of
        self.key = key
        self.partition = partition
        self.machine = SharePartition(partition.leader_epoch, self.settings)
        self.waiting: dict[Waiting, None] = {}
        self._timer: Timer | None = None
        self._is_waking = False

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index} of share group {self.key.group_id!r}"

    # -- settings ---------------------------------------------------------------------------------

    def settings(self) -> ShareSettings:
        """The group's, in force now."""
        return self._all.settings(self.key.group_id)

    # -- operations -------------------------------------------------------------------------------

    @property
    def error(self) -> ErrorCode:
        """Why it cannot be fetched from; NONE also while it is being loaded."""
        return self.machine.error

    def acquire(self, wanted: Wanted, max_bytes: int) -> Got | None:
        """Give a member records; None: there are none for it now. Raises KafkaError for what the log says, and `error`
        of a partition that has ended.
        """
        machine, partition = self.machine, self.partition
        if machine.error:
            raise KafkaError(machine.error)
        is_committed = self._all.reading(self.key.group_id).is_committed
        for _ in range(_ABORTED_AT_ONCE):
            if not machine.can_acquire:
                return None
            offset = machine.next_fetch_offset
            enough = max(offset, machine.end_offset) + min(wanted.max_records, max(machine.room, 1)) - 1
            try:
                read = read_for_share(partition, offset, max_bytes, enough, is_committed=is_committed)
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._all.apply(self, machine.log_start_moved(partition.log_start_offset))
                if machine.next_fetch_offset == offset:
                    return None
                continue
            if read is None:
                return None
            now = self._all.ground.time()
            acquired = machine.acquire(wanted, offset, read.batches, read.aborted, now)
            self._all.arm(self)
            if acquired:
                return Got(read.covering(acquired[0].first_offset, acquired[-1].last_offset), acquired)
            if machine.next_fetch_offset == offset:
                return None
        self.wake_soon()  # so much was aborted that others have their turn first
        return None

    def readable_bytes(self, max_bytes: int) -> int:
        """How much a member could be given, roughly; nothing is acquired."""
        machine, partition = self.machine, self.partition
        if not machine.can_acquire:
            return 0
        is_committed = self._all.reading(self.key.group_id).is_committed
        upper_offset = partition.last_stable_offset if is_committed else partition.high_watermark
        offset = machine.next_fetch_offset
        if not partition.log_start_offset <= offset < upper_offset:
            return 0 if offset >= upper_offset else max_bytes
        records = partition.read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=True)
        return 0 if records is None else records.length

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledgement], is_renew: bool, token: Any) -> None:
        """Answers an ErrorCode; see `SharePartition.acknowledge`."""
        now = self._all.ground.time()
        self._all.apply(self, self.machine.acknowledge(member_id, batches, is_renew, token, now))

    def release(self, member_id: str, token: Any = None) -> None:
        """Answers an ErrorCode; see `SharePartition.release`."""
        self._all.apply(self, self.machine.release(member_id, token))

    # -- waiting ----------------------------------------------------------------------------------

    def progress(self, added_bytes: int) -> None:
        """Part of `ProgressWaiter`: of the log, or of the role."""
        if self.is_led:
            if self.waiting:
                self.wake_soon()
        else:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def answer_now(self) -> None:
        """Part of `ProgressWaiter`: the broker stops."""
        for each in list(self.waiting):
            each.answer_now()

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads the partition, in the same epoch."""
        return self.partition.is_leader and self.partition.leader_epoch == self.machine.leader_epoch

    def end(self, error: ErrorCode) -> None:
        """It is not served here any more."""
        self._all.apply(self, self.machine.end(error))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`: an answer of its store, or a lock that has expired, could not be taken in. What it has
        in memory may never go on from there: whoever waits is told, and the next one begins with what is stored.
        """
        self.end(ErrorCode.UNKNOWN_SERVER_ERROR)
        return repr(self)

    def wake_soon(self) -> None:
        """Wake who waits, at the end of a write."""
        if not self._is_waking:
            self._is_waking = True
            self._all.soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        for each in list(self.waiting):
            if each in self.waiting:
                try:
                    each.wake(self)
                except Exception as error:
                    contain(log, f"waking who waits for {self!r}", error, each)

    # -- time -------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Keep one timer, due no later than the machine's next deadline."""
        deadline = self.machine.deadline()
        if deadline is None or self.machine.state is PartitionState.ENDED:
            return
        timer = self._timer
        if timer is not None:
            if timer.callback is not None and timer.deadline <= deadline:
                return
            timer.cancel()
        self._timer = self._all.ground.timers.at(deadline, self._expire)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        self._all.apply(self, self.machine.expire(self._all.ground.time()))


class SharePartitions:
    """See the module. soon: calls back in the end of the write that is under way, or soon. sessions: of the members
    that fetch from this broker. ends: of logs that other brokers lead.
    """

    def __init__(
        self,
        ground: CoordinatorGround,
        persister: SharePersister,
        soon: Callable[[Callable[[], None]], None],
        ends: LogEnds,
    ) -> None:
        self.ground = ground
        self.soon = soon
        self.persister = persister
        self._ends = ends
        self._led: dict[ShareKey, LedShare] = {}
        self._of_group: dict[str, dict[LedShare, None]] = {}
        self.sessions = ShareSessions()
        self._known: dict[str, _InForce] = {}
        self._giving_up: dict[_MemberKey, deque[tuple[bytes, int]]] = {}
        self._is_giving_up = False

    def __len__(self) -> int:
        return len(self._led)

    def __iter__(self) -> Iterator[LedShare]:
        return iter(list(self._led.values()))

    def __contains__(self, waiter: object) -> bool:
        """Whether a waiter of a partition is one of these."""
        return isinstance(waiter, LedShare)

    @property
    def waiting_count(self) -> int:
        """How many wait for records."""
        return len({id(each) for led in self._led.values() for each in led.waiting})

    async def run(self) -> None:
        """Reach stores on other brokers, until cancelled."""
        try:
            await self.persister.run()
        finally:
            await self._ends.close()

    # -- settings ---------------------------------------------------------------------------------

    def settings(self, group_id: str) -> ShareSettings:
        """Of a group, in force now."""
        return self._in_force(group_id).settings

    def reading(self, group_id: str) -> Reading:
        """How a group reads."""
        return self._in_force(group_id).reading

    def _in_force(self, group_id: str) -> _InForce:
        config, stored = self.ground.current_config(), self.ground.current_image().group_configs.get(group_id, _NOTHING)
        known = self._known.get(group_id)
        if known is None or known.config is not config or known.stored is not stored:
            settings, reading = share_groups.record_settings(config, stored), share_groups.reading(config, stored)
            known = _InForce(config, stored, settings, reading)
            if self.sessions.has_group(group_id):
                self._known[group_id] = known
        return known

    # -- which there are --------------------------------------------------------------------------

    def of(self, key: ShareKey) -> LedShare:
        """The share partition of a key; made, and being loaded, if there was none. Raises KafkaError UNKNOWN_TOPIC_ID,
        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        found = self.find(key)
        if found is not None:
            return found
        partition = self.ground.partitions.get_by_id(key.topic_id, key.partition)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        led = self._led[key] = LedShare(self, key, partition)
        self._of_group.setdefault(key.group_id, {})[led] = None
        partition.add_waiter(led)
        self.apply(led, led.machine.load())
        return led

    def find(self, key: ShareKey) -> LedShare | None:
        """The share partition of a key, if this broker has it and leads the partition still."""
        led = self._led.get(key)
        if led is None:
            return None
        known = self.ground.partitions.find(led.partition.topic, led.partition.index)
        if known is not led.partition or not led.is_led:
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return None
        return led

    # -- sessions ---------------------------------------------------------------------------------

    def before_session(self, group_id: str, member_id: str) -> Steps[None]:
        """For a member that is about to begin a session: what it had in one that has ended is given back in turns."""
        while cost := self._give_back((group_id, member_id), _GIVEN_BACK_AT_ONCE):
            yield 1 + int(cost * _GIVE_BACK_UNITS)

    def begin_session(self, group_id: str, member_id: str, owner: Hashable) -> ShareSession:
        """A new session of a member, after `before_session`. Raises KafkaError SHARE_SESSION_LIMIT_REACHED."""
        # Before it gets what it must not give back.
        self._give_back((group_id, member_id), math.inf)
        limit = self.ground.current_config().get_int("group.share.max.share.sessions")
        return self.sessions.begin(group_id, member_id, owner, limit)

    def end_session(self, session: ShareSession) -> None:
        """A member's session is over: others may have what it holds, unless it has begun another one since."""
        self.sessions.end(session)
        if not session.is_replaced:
            self._give_up([session])

    def connection_closed(self, owner: Hashable) -> None:
        """A connection is gone, and the sessions that it began."""
        self._give_up(self.sessions.end_of(owner))

    def _give_up(self, sessions: Iterable[ShareSession]) -> None:
        for session in sessions:
            self._giving_up.setdefault((session.group_id, session.member_id), deque()).extend(session.places)
        if not self._is_giving_up:
            self._give_back_some()

    def _give_back_some(self) -> None:
        """What members without a session have, of some partitions, as each is a write. The rest soon."""
        self._is_giving_up = True
        left: float = _GIVEN_BACK_AT_ONCE
        try:
            while self._giving_up and left > 0:
                left -= 1 + self._give_back(next(iter(self._giving_up)), left)
        finally:
            self._is_giving_up = bool(self._giving_up)
            if self._is_giving_up:
                self.ground.timers.after(_GIVE_BACK_PAUSE_S, self._give_back_some)

    def _give_back(self, member: _MemberKey, most: float) -> float:
        """What one of them has, of so many partitions at most. Returns of how many."""
        group_id, member_id = member
        places = self._giving_up.get(member)
        if places is None:
            return 0
        done = 0.0
        while places and done < most:
            try:
                led = self.find(ShareKey(group_id, *places.popleft()))
                done += _NOT_HERE_COST if led is None else 1
                if led is not None:
                    led.release(member_id)
            except Exception as error:
                contain(log, f"giving back what {member_id!r} of group {group_id!r} has", error)
        if not places:
            self._giving_up.pop(member, None)
            # What others have had must be stored, too: how often it was delivered.
            if not self.sessions.has_group(group_id) and all(group != group_id for group, _ in self._giving_up):
                self.forget_group(group_id)
        return done

    def forget_group(self, group_id: str) -> None:
        """The last session of a group is over here: what it has is loaded again for the next one."""
        self._known.pop(group_id, None)
        for led in list(self._of_group.get(group_id, ())):
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def forget_all(self) -> None:
        """Share groups are not served any more: no session is left, and their partitions leave memory."""
        self.sessions.clear()
        self._known.clear()
        self._giving_up.clear()
        for led in list(self._led.values()):
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def summaries(self, keys: Collection[ShareKey]) -> Mapping[ShareKey, Summary]:
        """Where partitions stand, whoever leads them."""
        if not keys:
            return {}
        told: dict[ShareKey, Summary] = {}
        is_told = trio.Event()

        def done(answers: dict[ShareKey, Summary]) -> None:
            told.update(answers)
            is_told.set()

        self.persister.ask_all(dict.fromkeys(keys, Summarize()), done)
        await is_told.wait()
        return told

    async def high_watermarks(self, wanted: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Of partitions, by topic and number, whoever leads them; without those that are not known in time."""
        found: dict[tuple[str, int], int] = {}
        for topic, index in wanted:
            here = self.ground.partitions.find(topic, index)
            if here is not None and here.is_leader:
                found[topic, index] = here.high_watermark
        elsewhere = [each for each in wanted if each not in found]
        return {**found, **await self._ends.ask(elsewhere, ENDS_S)} if elsewhere else found

    # -- what machines decide ---------------------------------------------------------------------

    def apply(self, led: LedShare, result: Result) -> None:
        """Give the answers, and carry out the effects."""
        for token, code in result.replies:
            try:
                token.reply(code)
            except Exception as error:
                contain(log, f"giving an answer of {led!r}", error, token)
        for effect in result.effects:
            self._carry_out(led, effect)
        if led.machine.state is PartitionState.ENDED and self._led.get(led.key) is led:
            del self._led[led.key]
            of_group = self._of_group[led.key.group_id]
            del of_group[led]
            if not of_group:
                del self._of_group[led.key.group_id]
            led.partition.remove_waiter(led)
            led.disarm()
            if led.machine.error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                log.warning("%r is not served: %s", led, led.machine.error.name)
        self.arm(led)

    def arm(self, led: LedShare) -> None:
        """After what may have locked records."""
        led.arm()

    def _carry_out(self, led: LedShare, effect: Any) -> None:
        if isinstance(effect, Acquirable):
            if led.waiting:
                led.wake_soon()
        elif isinstance(effect, WriteState):
            self.persister.ask(led.key, effect, partial(self._written, led, effect))
        elif isinstance(effect, ReadState):
            self.persister.ask(led.key, Read(effect.leader_epoch), partial(self._loaded, led))
        elif isinstance(effect, ResolveStart):
            self._resolve(led)
        else:
            raise TypeError(f"share partitions know no such effect: {effect!r}")

    def _written(self, led: LedShare, write: WriteState, told: Stored) -> None:
        self.apply(led, led.machine.written(write, told.code, self.ground.time()))

    def _loaded(self, led: LedShare, told: StateRead) -> None:
        self.apply(led, led.machine.loaded(told.code, told.state_epoch, told.start_offset, told.batches))

    def _resolve(self, led: LedShare) -> None:
        try:
            start: int | ErrorCode = self._start_of(led)
        except KafkaError as error:
            start = error.code
        self.apply(led, led.machine.resolved(start))

    def _start_of(self, led: LedShare) -> int:
        """Where a group begins. By time it is at the first record that is not older, or at the begin of its batch if
        that would take long to look through. Raises KafkaError.
        """
        partition, how = led.partition, self.reading(led.key.group_id)
        if how.from_earliest:
            return partition.log_start_offset
        if how.back_ms is None:
            return partition.high_watermark
        target_ms = max(self.ground.wall_ms() - how.back_ms, 0)
        try:
            found = partition.log.offset_for_timestamp(target_ms, leave_long=True)
            offset = None if found is None else found[1]
        except LongBatch as long:
            data = long.batch.data
            offset = read_header(data).base_offset if magic_of(data) == 2 else long.start_offset
            offset = max(offset, long.start_offset)
        return partition.high_watermark if offset is None else min(offset, partition.high_watermark)
