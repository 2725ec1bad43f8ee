"""From a machine's decisions to the answers: appends, replays, waits for the commit, and for the machine's deadlines.

    Result → Partition.append → shard.replay → (high watermark) → token.reply

Appending only *stages*; one write at the round's end has all decisions of the round, so a hundred commits share a batch
and a file write, and a single commit does not wait. Timers and tasks, which run outside a round, call the write
themselves.

If the log rejects the records, the machine reverts its soft state and gives the answer (`Result.failed`); a write that
is not committed in time, or with too few replicas, is answered with the corresponding error and stays in the log: if it
is committed later, `Result.committed` is still called.

An exception of a token, or of a step of a machine, is contained (`barnabas.server.runtime.containment`): the other
answers are delivered, the other steps are taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic

from barnabas.coordinator import NOTHING, CommitRecords, Now, Record, Reply, Result, StepFailed
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records_plain import PlainRecords
from barnabas.logdir import OwnProducer, StorageError
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, Held, S, Subject
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.runtime.containment import contain

EXPIRE_PER_CALLBACK = 500
STEP_REST_S = 1.0

_new_tuple = tuple.__new__


class Results(Generic[S]):
    """See the module. start_over: the shard's state may differ from the log; called with the error for waiting clients.
    resign: leadership of the partition of this index is lost.
    """

    def __init__(
        self,
        ground: CoordinatorGround,
        subject: Subject[S],
        *,
        start_over: Callable[[CoordinatedShard[S], ErrorCode], None],
        resign: Callable[[int], None],
    ) -> None:
        self._subject = subject
        self._log = subject.log
        self._start_over = start_over
        self._resign = resign
        self._partitions = ground.partitions
        self._timers = ground.timers
        self._ground = ground
        self._is_write_due = False

    def apply(
        self,
        led: CoordinatedShard[S],
        result: Result,
        producer: OwnProducer | None = None,
        now: Now | None = None,
    ) -> None:
        """Append, replay, and answer now or when committed; see `barnabas.coordinator.machine`. producer: the records
        are part of its transaction. now: when the machine has decided, if the caller has asked the clock for that.
        """
        records, replies, held, _, committed, effects = result
        if replies:
            self.deliver(replies)
        if records:
            now = now or self._ground.time()
            code = self._append(led, records, producer, now.wall_ms)
            if code != ErrorCode.NONE:
                self.apply(led, self._instead(result, code, now, appended=False))
                self._arm(led)
                return
        for effect in effects:
            self._subject.carry_out(led, effect)
        if held or committed is not None:
            if self._subject.required_acks != -1:
                self._partitions.after_write(partial(self._written, led, result, led.appended_to))
            elif led.appended_to > led.partition.high_watermark:
                self._hold(led, result, now or self._ground.time())
            else:
                self._succeeded(led, result)
        self._arm(led)

    def _append(
        self, led: CoordinatedShard[S], records: Sequence[Record], producer: OwnProducer | None, wall_ms: int
    ) -> ErrorCode:
        """Stage the records, and replay them."""
        partition = led.partition
        own = records if isinstance(records, CommitRecords) else PlainRecords(records)
        try:
            base_offset = partition.append_own(own, wall_ms, self._subject.required_acks, producer)
        except KafkaError as error:
            self._log.warning("%r rejected %d records: %s", led, len(records), error)
            if isinstance(error, StorageError) and led.appended_to > partition.log_end_offset:
                led.suspend()  # `write_failed` will be called, or `resign`
            return error.code
        led.appended_to = partition.log.state.next_offset
        producer_id = -1 if producer is None else producer.producer_id
        try:
            self._subject.replay_decided(led.shard, records, base_offset, partition.high_watermark, producer_id)
        except Exception as error:
            contain(self._log, f"replaying what is being written to {led!r}", error)
            self._start_over(led, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _hold(self, led: CoordinatedShard[S], result: Result, now: Now) -> None:
        due = now.seconds + self._subject.commit_timeout_s
        led.held.append(_new_tuple(Held, (led.appended_to, due, result)))
        if led.commit_timer is None:
            led.commit_timer = self._timers.at(due, partial(self._commits_due, led))
        if not led.is_watching:
            self._watch(led)

    def _watch(self, led: CoordinatedShard[S]) -> None:
        """Wait for the first write that is not committed; the others come after it."""
        led.is_watching = True
        first = led.late[0] if led.late else led.held[0]
        led.partition.when_committed(first.end_offset, partial(self._reached, led))

    def _reached(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        led.is_watching = False
        try:
            self.committed(led, code)
        finally:
            if (led.late or led.held) and not (led.is_watching or led.is_closed) and led.partition.is_leader:
                self._watch(led)

    def committed(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        """The high watermark moved past a write, or leadership is lost, or a flush failed that it waited for."""
        if led.is_closed:
            return
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            if led.partition.is_leader:
                self._start_over(led, code)
            else:
                self._resign(led.partition.index)
            return
        high_watermark = led.partition.high_watermark
        while led.late and led.late[0].end_offset <= high_watermark:
            result = led.late.popleft().result
            if result.committed is not None:
                self.later(led, result.committed)
        while led.held and led.held[0].end_offset <= high_watermark:
            result = led.held.popleft().result
            if code == ErrorCode.NONE or result.failed is None:
                self.deliver(result.held)
                if result.committed is not None:
                    self.later(led, result.committed)
            else:
                # It stays in the log, and its clients get an error.
                instead = self._instead(result, code, self._ground.time())
                self.deliver(instead.replies)
                self.later(led, lambda now, instead=instead: instead._replace(replies=()))  # type: ignore[misc]
                if result.committed is not None:
                    self.later(led, result.committed)

    def _succeeded(self, led: CoordinatedShard[S], result: Result) -> None:
        self.deliver(result.held)
        if result.committed is not None:
            self.later(led, result.committed)

    def _written(self, led: CoordinatedShard[S], result: Result, end_offset: int) -> None:
        """With `offsets.commit.required.acks` 0 or 1 answers do not wait for the followers."""
        error = led.partition.outcome_of(end_offset - 1)
        if error is None or result.failed is None:
            self._succeeded(led, result)
        else:
            self.deliver(self._instead(result, error.code, self._ground.time()).replies)

    def _commits_due(self, led: CoordinatedShard[S]) -> None:
        """Answer writes that took too long, though they may still be committed."""
        led.commit_timer = None
        now = self._ground.time()
        while led.held and led.held[0].due <= now.seconds:
            each = led.held.popleft()
            if each.result.committed is not None:
                led.late.append(each)
            self.apply(led, self._instead(each.result, ErrorCode.REQUEST_TIMED_OUT, now))
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
            contain(self._log, f"what follows from {code.name}", error, *(token for token, _ in result.held))
            return NOTHING

    def deliver(self, replies: Iterable[Reply]) -> None:
        """Deliver the answers to their tokens."""
        for token, response in replies:
            try:
                token.reply(response)
            except Exception as error:
                contain(self._log, "giving a coordinator's answer", error, token)

    def end(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        """`led` is closed: answer clients that wait for a write of it as if that had failed with `code`."""
        now = self._ground.time()
        for timer in (led.timer, led.commit_timer):
            if timer is not None:
                timer.cancel()
        try:
            self.deliver(self._subject.unloaded(led, now))
        except Exception as error:
            contain(self._log, f"answering clients that wait in {led!r}, which another broker leads", error)
        held, led.held = led.held, deque()
        led.late.clear()
        for each in held:
            # The machine has ended by now, so there is nothing to write any more.
            self.deliver(self._instead(each.result, code, now).replies)

    # -- what follows from a write -----------------------------------------------------------------

    def later(self, led: CoordinatedShard[S], step: Callable[[Now], Result]) -> None:
        """Call `step` when the write that is under way is done: it may append to the same partition."""
        led.next_steps.append(step)
        if len(led.next_steps) == 1:
            self.after_write(partial(self._take_steps, led))

    def _take_steps(self, led: CoordinatedShard[S]) -> None:
        steps, led.next_steps = led.next_steps, []
        for step in steps:
            if led.is_closed:
                return
            try:
                self.apply(led, step(self._ground.time()))
            except Exception as error:
                contain(self._log, f"what follows from a write to {led!r}", error, step)

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back in this write's end, if one is under way, in the round's, or soon."""
        self._partitions.after_write(callback)
        if not self._is_write_due:
            self._is_write_due = True
            self._timers.after(0, self._write_due)

    def _write_due(self) -> None:
        self._is_write_due = False
        self._partitions.write_staged()

    # -- timers ------------------------------------------------------------------------------------

    def _arm(self, led: CoordinatedShard[S]) -> None:
        """Keep one timer per partition, due no later than the shard's next deadline."""
        deadline = led.shard.deadline()
        if deadline is None or led.is_closed:
            return
        timer = led.timer
        if timer is not None:
            if timer.callback is not None and timer.deadline <= deadline:
                return
            timer.cancel()
        led.timer = self._timers.at(deadline, partial(self._expire, led))

    def _expire(self, led: CoordinatedShard[S]) -> None:
        led.timer = None
        at = None
        for _ in range(EXPIRE_PER_CALLBACK):
            now = self._ground.time()
            deadline = led.shard.deadline()
            if deadline is None or deadline > now.seconds or led.is_closed:
                break
            try:
                self.apply(led, led.shard.expire(now))
            except StepFailed as failed:
                self.apply(led, failed.instead)
                if failed.key not in led.failed_steps:  # it is tried again and again, and would say the same
                    led.failed_steps.add(failed.key)
                    contain(self._log, f"{led!r}: what is due for {failed.key}", failed.__cause__ or failed)
            except Exception as error:
                contain(self._log, f"what is due in {led!r}", error)
                at = now.seconds + STEP_REST_S  # lest a machine that does not get on keeps us busy
                break
        if at is None:
            self._arm(led)
        elif not led.is_closed:
            led.timer = self._timers.at(at, partial(self._expire, led))
        self._partitions.write_staged()
