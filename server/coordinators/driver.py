"""Drives coordinator machines: one shard per partition of an internal topic that this broker leads.

What a shard decides is appended as one batch, replayed at once, and answered when committed:

    handler or timer → shard operation → Result → Partition.append → shard.replay → (high watermark) → token.reply

Appending only *stages*; the round's one write carries what all shards of a partition decided in it, so a hundred
commits share a file write and a commit that is alone costs no wait. Timers and tasks, which run outside a round, end
with the write themselves.

If the log refuses, the machine takes its soft state back and says what to answer (`Result.failed`); a write that is
not committed in time, or with too few replicas, is answered with the error that this means for the client and stays in
the log: should it be committed after all, `Result.committed` is still called. When a log directory goes offline its
shards are forgotten (`resign`). When a write fails though the log can be used (the process lacked descriptors, say),
the machine knows what was never written: whoever waits is told, and the shard is loaded again (`write_failed`). Either
way nothing replayed from a lost write is ever served.

Loading: whoever becomes leader replays the partition from its log start to its *end*, in slices between which the loop
runs. What is behind the high watermark then was perhaps acknowledged by the leader before, whose high watermark was
ahead of ours: it must not be left out of an answer. It will be committed as soon as the followers have fetched once;
the shard waits for that, for ever or for `open_s`. Meanwhile it answers COORDINATOR_LOAD_IN_PROGRESS. Batches that
cannot be read are reported and skipped: one bad sector must not take the whole partition away.

Handing over: `lead` and `resign` are called in the order of the partition's leader epochs, on this thread, so a late
one cannot be mistaken for news; what is under way (a load, a held answer) belongs to one `Led` and ends with it.

A token is anything with `reply(response)`: a RequestContext, or a handler's own collector. What a token, or a step of
a machine, raises is contained (`barnabas.server.runtime.containment`): the rest of the answers are given, the rest of
what is due is done. The clock is `timers`' (trio's). What the machines are, and what they are asked, is the
subclasses': `barnabas.server.coordinators.groups`, `barnabas.server.coordinators.transactions`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import trio

from barnabas import coordinator
from barnabas.coordinator import NOTHING, Now, Reply, Result, StepFailed, partition_for
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records_plain import build_plain_batch
from barnabas.logdir import AppendOrigin, InTransaction, StorageError
from barnabas.replication import Image, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.loading import Replayed, replay_slice
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.runtime.containment import contain, serve
from barnabas.server.runtime.timers import Timer, Timers

LOAD_BYTES = 64 * 1024
"""One slice of loading: some hundred records, a few milliseconds of the loop."""
LOAD_RETRY_SECONDS = 5.0
EXPIRE_PER_CALLBACK = 500
CREATE_RETRY_SECONDS = 1.0
STEP_REST_SECONDS = 1.0

CreateTopic = Callable[[str], Awaitable[None]]
"""Creates an internal topic, in the form that its coordinator needs. Raises KafkaError."""


class Shard(Protocol):
    """What the driver itself asks of a machine."""

    def loaded(self, now: Now) -> Result: ...

    def deadline(self) -> float | None: ...

    def expire(self, now: Now) -> Result: ...


S = TypeVar("S", bound=Shard)


class Producer(NamedTuple):
    """Whose transaction records belong to: they are appended as a batch of it, checked as `in_txn` says."""

    producer_id: int
    producer_epoch: int
    in_txn: InTransaction | None = None


class _Held(NamedTuple):
    """A result that waits until the high watermark reaches `end_offset`; its clients until `due` (seconds)."""

    end_offset: int
    due: float
    result: Result


class Led(Generic[S]):
    """A partition that this broker leads, and its shard. `loaded_to`, `appended_to`: the offsets behind the last record
    that was replayed from the log, and that was written for it. `late`: results whose clients were told of a time-out.
    `failed_steps`: the keys of deadlines whose steps have failed, and were logged.
    """

    __slots__ = (
        "appended_to",
        "commit_timer",
        "failed_steps",
        "held",
        "is_loaded",
        "late",
        "loaded_to",
        "next_steps",
        "partition",
        "shard",
        "timer",
    )

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.shard = shard
        self.is_loaded = False
        self.appended_to = 0
        self.loaded_to = 0
        self.held: deque[_Held] = deque()
        self.late: deque[_Held] = deque()
        self.next_steps: list[Callable[[Now], Result]] = []
        self.failed_steps: set[Hashable] = set()
        self.timer: Timer | None = None
        self.commit_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"


class ShardDriver(Generic[S]):
    """See the module. `lead` and `resign` are `barnabas.server.partitions.registry`' to call; `run` must be running for
    partitions to be loaded and the topic to be created.

    topic: the internal topic. log: where the subject's messages go. open_s: how many seconds a loaded shard waits at
    most for the high watermark to pass what was loaded; None: for ever.
    """

    topic: ClassVar[str]
    log: ClassVar[logging.Logger]
    open_s: ClassVar[float | None] = None

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
    ) -> None:
        self._partitions = partitions
        self._timers = timers
        self._image = current_image
        self._config = current_config
        self._create_topic = create_topic
        self._clock = now
        self._wall_ms = wall_ms
        self._led: dict[int, Led[S]] = {}
        self._to_load: deque[Led[S]] = deque()
        self._load_wanted = trio.Event()
        self._topic_wanted = trio.Event()
        self._is_write_due = False

    def _now(self) -> Now:
        return Now(self._clock(), self._wall_ms())

    # -- what the subject's driver says ------------------------------------------------------------

    def _new_shard(self, partition: Partition) -> S:
        """An empty machine for a partition that is led from now on."""
        raise NotImplementedError

    def _replayed(self, shard: S) -> Replayed:
        """What takes the records of the log."""
        raise NotImplementedError

    def _replay_decided(
        self, shard: S, records: Sequence[coordinator.Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        """Let the machine have what it decided, now that it is in the log."""
        replay = self._replayed(shard).replay
        for offset, record in enumerate(records, base_offset):
            replay(record.key, record.value, offset, committed_to, producer_id)

    def _unloaded(self, led: Led[S], now: Now) -> Iterable[Reply]:
        """The partition is led elsewhere: end the machine; what those hear who wait in it."""
        raise NotImplementedError

    def _carry_out(self, led: Led[S], effect: Any) -> None:
        """One of `Result.effects`."""
        raise TypeError(f"{self.topic} knows no effects: {effect!r}")

    def _required_acks(self) -> int:
        return -1

    def _commit_timeout_s(self) -> float:
        """After how long clients whose write is not committed are told so."""
        raise NotImplementedError

    def _size(self, shard: S) -> int:
        """How many groups or ids there are, for the log."""
        raise NotImplementedError

    # -- roles -------------------------------------------------------------------------------------

    def lead(self, partition: Partition) -> None:
        """This broker leads a partition of the topic (again: another epoch changes nothing)."""
        led = self._led.get(partition.index)
        if led is not None and led.partition is partition:
            return
        if led is not None:
            self.resign(partition.index)
        led = self._led[partition.index] = Led(partition, self._new_shard(partition))
        if partition.log_start_offset >= partition.log_end_offset:
            self._loaded(led)
        else:
            self._to_load.append(led)
            self._load_wanted.set()

    def resign(self, index: int) -> None:
        """Another broker leads, or the topic is deleted: whoever waits is sent away, the shard is forgotten."""
        led = self._led.pop(index, None)
        if led is not None:
            self._end(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.log.info("no longer the coordinator for %r", led)

    def resign_all(self) -> None:
        """The broker stops."""
        while self._led:
            self._end(self._led.popitem()[1], ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def write_failed(self, index: int) -> None:
        """A write of a partition failed, whose log can be used: if the shard has replayed what is lost, it starts over.
        To be called before anybody asks the shard again.
        """
        led = self._led.get(index)
        if led is not None and led.appended_to > led.partition.log_end_offset:
            self._start_over(led, ErrorCode.KAFKA_STORAGE_ERROR)

    def _start_over(self, led: Led[S], code: ErrorCode) -> None:
        """The machine knows more than will be in the log, or less, or nobody can tell: load it anew."""
        self.log.warning("%r is loaded again, as a write has failed (%s)", led, code.name)
        again = self._led[led.partition.index] = Led(led.partition, self._new_shard(led.partition))
        self._end(led, code)
        self._to_load.append(again)
        self._load_wanted.set()

    def _end(self, led: Led[S], code: ErrorCode) -> None:
        """Nothing is asked of `led` any more, which is not in the table: whoever waits hears that, or of `code`."""
        now = self._now()
        for timer in (led.timer, led.commit_timer):
            if timer is not None:
                timer.cancel()
        try:
            self._deliver(self._unloaded(led, now))
        except Exception as error:
            contain(self.log, f"telling who waits in {led!r} that it is led elsewhere", error)
        held, led.held = led.held, deque()
        led.late.clear()
        for each in held:
            # The machine has ended by now, so there is nothing to write any more.
            self._deliver(self._instead(each.result, code, now).replies)

    # -- tasks -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, and create the topic, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_loading)
            nursery.start_soon(serve, self.log, f"having {self.topic} created", self._run_topic_creation)

    async def _run_loading(self) -> None:
        while True:
            while self._to_load:
                led = self._to_load.popleft()
                try:
                    is_done = await self._load(led)
                except Exception as error:
                    is_done = False
                    contain(self.log, f"loading {led!r}", error)
                if not is_done:
                    self._timers.after(LOAD_RETRY_SECONDS, partial(self._load_again, led))
            await self._load_wanted.wait()
            self._load_wanted = trio.Event()

    def _load_again(self, led: Led[S]) -> None:
        if self._is_led(led):
            self._to_load.append(led)
            self._load_wanted.set()

    async def _load(self, led: Led[S]) -> bool:
        """Replay the whole log of `led`. False: the log could not be read; to be tried again."""
        partition = led.partition
        started = self._clock()
        led.is_loaded = False
        led.shard = self._new_shard(partition)
        replayed = self._replayed(led.shard)
        offset = partition.log_start_offset
        try:
            while self._is_led(led) and offset < partition.log_end_offset:
                end_offset = partition.log_end_offset
                found = partition.read(offset, LOAD_BYTES, upper_offset=end_offset, min_one_batch=True)
                if found is None:
                    break
                next_offset = replay_slice(replayed, found.read(), offset, end_offset, end_offset, self.topic)
                offset = max(next_offset, offset + 1)
                await trio.lowlevel.checkpoint()
        except (KafkaError, OSError) as error:
            if not self._is_led(led):
                return True  # the log belongs to somebody else's followers now
            self.log.error("loading %r stopped at offset %d: %s", led, offset, error)
            return False
        if self._is_led(led):
            led.loaded_to = partition.log_end_offset
            size, seconds = self._size(led.shard), self._clock() - started
            self.log.info("loaded %d entries from %r, %d offsets long, in %.3f s", size, led, offset, seconds)
            if partition.high_watermark >= led.loaded_to:
                self._loaded(led)
                self._partitions.write_staged()
            else:
                if self.open_s is not None:
                    self._timers.after(self.open_s, partial(self._open, led))
                partition.when_committed(led.loaded_to, partial(self._load_committed, led))
        return True

    def _load_committed(self, led: Led[S], code: ErrorCode) -> None:
        """The followers have what was loaded, or leadership is lost, which `resign` will tell."""
        self._timers.after(0, partial(self._open, led))

    def _open(self, led: Led[S]) -> None:
        """Serve what was loaded, unless the log has grown meanwhile."""
        if not self._is_led(led) or led.is_loaded:
            return
        if led.partition.log_end_offset == led.loaded_to:
            self._loaded(led)
            self._partitions.write_staged()
        else:
            self._load_again(led)

    def _loaded(self, led: Led[S]) -> None:
        led.is_loaded = True
        self._apply(led, led.shard.loaded(self._now()))

    async def _run_topic_creation(self) -> None:
        while True:
            await self._topic_wanted.wait()
            if self.topic not in self._image().topics:
                try:
                    await self._create_topic(self.topic)
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        self.log.warning("%s cannot be created: %s", self.topic, error)
                        await trio.sleep(CREATE_RETRY_SECONDS)
            self._topic_wanted = trio.Event()

    def want_topic(self) -> None:
        """Somebody looks for a coordinator and the topic does not exist yet: have it created."""
        self._topic_wanted.set()

    # -- where a key lives -------------------------------------------------------------------------

    def place(self, key: str) -> PartitionImage | None:
        """The partition that a group or transactional id lives in; None while the topic does not exist."""
        topic = self._image().topics.get(self.topic)
        if topic is None or not topic.partitions:
            return None
        return topic.partitions[partition_for(key, len(topic.partitions))]

    def _is_led(self, led: Led[S]) -> bool:
        return self._led.get(led.partition.index) is led

    def _led_for(self, key: str) -> Led[S]:
        """The partition of a key. Raises KafkaError 16 (led elsewhere, or no topic) or 14 (loading)."""
        place = self.place(key)
        led = None if place is None else self._led.get(place.index)
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    # -- from a result to the answers --------------------------------------------------------------

    def _apply(self, led: Led[S], result: Result, producer: Producer | None = None) -> None:
        """Append, replay, and answer now or when committed; see `barnabas.coordinator.machine`. producer: the records
        are part of its transaction.
        """
        self._deliver(result.replies)
        if result.records:
            code = self._append(led, result.records, producer)
            if code != ErrorCode.NONE:
                self._apply(led, self._instead(result, code, self._now(), appended=False))
                self._arm(led)
                return
        for effect in result.effects:
            self._carry_out(led, effect)
        if result.held or result.committed is not None:
            if self._required_acks() != -1:
                self._partitions.after_write(partial(self._written, led, result, led.appended_to))
            elif led.appended_to > led.partition.high_watermark:
                self._hold(led, result)
            else:
                self._succeeded(led, result)
        self._arm(led)

    def _append(self, led: Led[S], records: Sequence[coordinator.Record], producer: Producer | None) -> ErrorCode:
        """Stage the records as one batch and replay them."""
        partition, wall_ms = led.partition, self._wall_ms()
        producer_id, producer_epoch, in_txn = producer or (-1, -1, None)
        batch = build_plain_batch(
            records,
            wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer is not None,
        )
        try:
            info = partition.append(
                batch,
                origin=AppendOrigin.COORDINATOR,
                now_ms=wall_ms,
                required_acks=self._required_acks(),
                in_txn=in_txn,
            )
        except KafkaError as error:
            self.log.warning("%r refused %d records: %s", led, len(records), error)
            if isinstance(error, StorageError) and led.appended_to > partition.log_end_offset:
                led.is_loaded = False  # `write_failed` will be called, or `resign`
            return error.code
        led.appended_to = info.base_offset + len(records)
        try:
            self._replay_decided(led.shard, records, info.base_offset, partition.high_watermark, producer_id)
        except Exception as error:
            contain(self.log, f"replaying what is being written to {led!r}", error)
            self._start_over(led, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _hold(self, led: Led[S], result: Result) -> None:
        due = self._clock() + self._commit_timeout_s()
        led.held.append(_Held(led.appended_to, due, result))
        if led.commit_timer is None:
            led.commit_timer = self._timers.at(due, partial(self._commits_due, led))
        led.partition.when_committed(led.appended_to, partial(self._committed, led))

    def _committed(self, led: Led[S], code: ErrorCode) -> None:
        """The high watermark moved past a write, or leadership is lost, or a flush failed that it waited for."""
        if not self._is_led(led):
            return
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            if led.partition.is_leader:
                self._start_over(led, code)
            else:
                self.resign(led.partition.index)
            return
        high_watermark = led.partition.high_watermark
        while led.late and led.late[0].end_offset <= high_watermark:
            result = led.late.popleft().result
            if result.committed is not None:
                self._later(led, result.committed)
        while led.held and led.held[0].end_offset <= high_watermark:
            result = led.held.popleft().result
            if code == ErrorCode.NONE or result.failed is None:
                self._succeeded(led, result)
            else:
                # It is in the log for good, and its clients are told that it failed.
                instead = self._instead(result, code, self._now())
                self._deliver(instead.replies)
                self._later(led, lambda now, instead=instead: instead._replace(replies=()))  # type: ignore[misc]
                if result.committed is not None:
                    self._later(led, result.committed)

    def _succeeded(self, led: Led[S], result: Result) -> None:
        self._deliver(result.held)
        if result.committed is not None:
            self._later(led, result.committed)

    def _written(self, led: Led[S], result: Result, end_offset: int) -> None:
        """With `offsets.commit.required.acks` 0 or 1 nobody waits for the followers."""
        error = led.partition.outcome_of(end_offset - 1)
        if error is None or result.failed is None:
            self._succeeded(led, result)
        else:
            self._deliver(self._instead(result, error.code, self._now()).replies)

    def _commits_due(self, led: Led[S]) -> None:
        """Writes that took too long are answered, though they may be committed yet."""
        led.commit_timer = None
        now = self._now()
        while led.held and led.held[0].due <= now.seconds:
            each = led.held.popleft()
            if each.result.committed is not None:
                led.late.append(each)
            self._apply(led, self._instead(each.result, ErrorCode.REQUEST_TIMED_OUT, now))
        if led.held and led.commit_timer is None:
            led.commit_timer = self._timers.at(led.held[0].due, partial(self._commits_due, led))
        self._partitions.write_staged()

    def _instead(self, result: Result, code: ErrorCode, now: Now, *, appended: bool = True) -> Result:
        """What to do instead of `result`, whose write has failed, or is not committed (in time)."""
        if result.failed is None:
            return NOTHING
        try:
            return result.failed(code, appended, now)
        except Exception as error:
            contain(self.log, f"what follows from {code.name}", error, *(token for token, _ in result.held))
            return NOTHING

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for token, response in replies:
            try:
                token.reply(response)
            except Exception as error:
                contain(self.log, "giving a coordinator's answer", error, token)

    # -- what follows from a write -----------------------------------------------------------------

    def _later(self, led: Led[S], step: Callable[[Now], Result]) -> None:
        """Carry on with `step` when the write that is under way is done: it may append to the same partition."""
        led.next_steps.append(step)
        if len(led.next_steps) == 1:
            self._after_write(partial(self._take_steps, led))

    def _take_steps(self, led: Led[S]) -> None:
        steps, led.next_steps = led.next_steps, []
        for step in steps:
            if not self._is_led(led):
                return
            try:
                self._apply(led, step(self._now()))
            except Exception as error:
                contain(self.log, f"what follows from a write to {led!r}", error, step)

    def _after_write(self, callback: Callable[[], None]) -> None:
        """Call back in this write's end, if one is under way, in the round's, or soon."""
        self._partitions.after_write(callback)
        if not self._is_write_due:
            self._is_write_due = True
            self._timers.after(0, self._write_due)

    def _write_due(self) -> None:
        self._is_write_due = False
        self._partitions.write_staged()

    # -- timers ------------------------------------------------------------------------------------

    def _arm(self, led: Led[S]) -> None:
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

    def _expire(self, led: Led[S]) -> None:
        led.timer = None
        at = None
        for _ in range(EXPIRE_PER_CALLBACK):
            now = self._now()
            deadline = led.shard.deadline()
            if deadline is None or deadline > now.seconds or not self._is_led(led):
                break
            try:
                self._apply(led, led.shard.expire(now))
            except StepFailed as failed:
                self._apply(led, failed.instead)
                if failed.key not in led.failed_steps:  # it is tried again and again, and would say the same
                    led.failed_steps.add(failed.key)
                    contain(self.log, f"{led!r}: what is due for {failed.key}", failed.__cause__ or failed)
            except Exception as error:
                contain(self.log, f"what is due in {led!r}", error)
                at = now.seconds + STEP_REST_SECONDS  # lest a machine that does not get on keeps us busy
                break
        if at is None:
            self._arm(led)
        elif self._is_led(led):
            led.timer = self._timers.at(at, partial(self._expire, led))
        self._partitions.write_staged()
