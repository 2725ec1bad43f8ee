"""A partition's leader and its log, as far as transactions see them.

The log is a list of batches and markers; the producers are `barnabas.logdir.segments.producers.Producers`, live and
after an election (read from the log again, as a new leader of a replica that is behind would have to). A transactional
batch is verified with the coordinator, or made part of the transaction there (KIP-890), before it is let in. Producers
are answered when the high watermark has passed (acks=all). A leader that was voted out appends no more: what it had and
the others did not is cut, or stays.

`visible` is what a read_committed consumer makes of the log: up to the last stable offset, without what the list of
aborted transactions says, in the way consumers use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.stored import CommittedOffset
from barnabas.coordinator.tests.exactly_once.office import Offices
from barnabas.coordinator.tests.exactly_once.world import WALL_START_MS, Answer, World
from barnabas.coordinator.txn import verification_error
from barnabas.kproto import ErrorCode
from barnabas.kproto.errors import KafkaError
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.segments.producers import InTransaction, Producers, Verification

TopicPartition = tuple[str, int]
APPEND_TIMEOUT_S = 4.0


class Batch(NamedTuple):
    """One entry of the log, at one offset. `value` None: a marker, of `commit`."""

    producer_id: int
    epoch: int
    sequence: int
    value: Any
    commit: bool = False
    coordinator_epoch: int = -1


class Produce(NamedTuple):
    """A batch of one record on its way; offsets of a group have sequence -1. `adds`: its client has transaction.version
    2 and adds no partitions itself.
    """

    name: str
    producer_id: int
    epoch: int
    sequence: int
    value: Any
    adds: bool


class Partition:
    """See the module. `group`: for the partition of `__consumer_offsets`, the offsets that its records hold."""

    def __init__(self, world: World, offices: Offices, place: TopicPartition, number: int) -> None:
        self.world = world
        self.offices = offices
        self.place = place
        self.log: list[Batch] = []
        self.high_watermark = 0
        self.producers = Producers()
        self.aborted: list[AbortedTxn] = []
        self.group = Offsets() if place[0] == "__consumer_offsets" else None
        self.life = 0
        self.is_up = True
        self.slow = False
        self.refuses: ErrorCode | None = None
        self._number = number
        self._waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    @property
    def address(self) -> int:
        """The broker that leads it: markers for an earlier one are refused."""
        return self._number * 1000 + self.life

    # -- what clients write -----------------------------------------------------------------------

    def produce(self, request: Produce, answer: Answer) -> None:
        """Produce, or TxnOffsetCommit. Answers an error code."""
        if not self.is_up:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.group is None and self.producers.duplicate(
            request.producer_id, request.epoch, request.sequence, request.sequence
        ):
            self._append(request, None, answer)
            return
        try:
            verification = self.producers.verify(
                request.producer_id, request.epoch, request.sequence, request.adds, self.world.now.wall_ms
            )
        except KafkaError as error:
            answer(error.code)
            return
        if verification is None:
            self._append(request, None, answer)
            return
        life, until = self.life, self.world.seconds + 1.0

        def confirmed(code: ErrorCode | None) -> None:
            if life != self.life or not self.is_up:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif code == ErrorCode.NONE:
                self._append(request, verification, answer)
            elif code == ErrorCode.CONCURRENT_TRANSACTIONS and request.adds and self.world.seconds < until:
                self.world.after(0.02, ask)
            elif code is None:
                answer(ErrorCode.NETWORK_EXCEPTION)
            else:
                self.producers.refuse_verification(request.producer_id, request.epoch, verification)
                answer(verification_error(code, True))

        def ask() -> None:
            self.world.ask(lambda reply: self._verify(request, reply), confirmed, 3.0)

        ask()

    def _verify(self, request: Produce, reply: Answer) -> None:
        """AddPartitionsToTxn arrives at a coordinator, from this leader."""
        office = self.offices.find()
        if office is None:
            reply(ErrorCode.NOT_COORDINATOR)
        elif request.adds:
            office.add(request.name, request.producer_id, request.epoch, {self.place}, 5, reply)
        else:
            reply(office.verify(request.name, request.producer_id, request.epoch, self.place))

    def _append(self, request: Produce, verification: Verification | None, answer: Answer) -> None:
        if self.refuses is not None and self.world.rng.random() < 0.5:
            answer(self.refuses)
            return
        offset = len(self.log)
        try:
            earlier = self.producers.append(
                request.producer_id,
                request.epoch,
                request.sequence,
                0,
                offset,
                self.world.now.wall_ms,
                True,
                # A group's offsets are the coordinator's records, without a sequence: a repeated commit is there twice.
                from_client=self.group is None,
                in_txn=InTransaction(verification),
            )
        except KafkaError as error:
            answer(error.code)
            return
        if earlier is not None:
            # As acks=all does: a repeated batch waits for the same offset.
            self._wait(earlier.last_offset + 1, answer)
            return
        self._grow(Batch(request.producer_id, request.epoch, request.sequence, request.value))
        self._wait(offset + 1, answer)

    def write_marker(self, broker_id: int, marker: Any, answer: Callable[[ErrorCode], None]) -> None:
        """One marker of a WriteTxnMarkers request."""
        if broker_id != self.address or not self.is_up:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.refuses is not None and self.world.rng.random() < 0.5:
            answer(self.refuses)
            return
        offset = len(self.log)
        try:
            aborted = self.producers.end_transaction(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                offset,
                self.world.now.wall_ms,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            answer(error.code)
            return
        if aborted is not None:
            self.aborted.append(aborted)
        self._grow(
            Batch(
                marker.producer_id,
                marker.producer_epoch,
                -1,
                None,
                marker.transaction_result,
                marker.coordinator_epoch,
            )
        )
        self._wait(offset + 1, answer)

    def _grow(self, batch: Batch) -> None:
        self.log.append(batch)
        end, life = len(self.log), self.life
        self.producers.commit(end)
        self._replay(batch, end - 1)
        rng = self.world.rng
        delay = rng.uniform(0.5, 8.0) if self.slow and rng.random() < 0.5 else rng.uniform(0.001, 0.01)

        def replicated() -> None:
            if life == self.life and self.is_up and end > self.high_watermark:
                self.high_watermark = end
                waiting, self._waiting = self._waiting, []
                for due, told in waiting:
                    if due <= end:
                        told(ErrorCode.NONE)
                    else:
                        self._waiting.append((due, told))

        self.world.after(delay, replicated)

    def _wait(self, end: int, answer: Answer) -> None:
        if end <= self.high_watermark:
            answer(ErrorCode.NONE)
            return
        entry = (end, answer)
        self._waiting.append(entry)

        def too_late() -> None:
            if entry in self._waiting:
                self._waiting.remove(entry)
                answer(ErrorCode.REQUEST_TIMED_OUT)

        self.world.after(APPEND_TIMEOUT_S, too_late)

    def _replay(self, batch: Batch, offset: int) -> None:
        """The group's offsets follow the log."""
        if self.group is None:
            return
        if batch.value is None:
            self.group.end_transaction(batch.producer_id, batch.commit, offset, self.high_watermark)
        else:
            committed = CommittedOffset(batch.value, -1, "", WALL_START_MS, -1)
            self.group.put_pending(batch.producer_id, ("in", 0), committed, offset)

    # -- elections --------------------------------------------------------------------------------

    def elect(self) -> None:
        """The leader dies, or is voted out; another goes on after a while."""
        rng = self.world.rng
        if not self.is_up:
            return
        self.is_up = False
        self.life += 1
        kept = rng.randint(self.high_watermark, len(self.log))
        self.world.note(f"{self.place}: leader falls, {kept} of {len(self.log)} stay")
        del self.log[kept:]
        waiting, self._waiting = self._waiting, []
        if rng.random() < 0.5:
            for _, told in waiting:
                told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.producers, self.aborted = self._read()
        if self.group is not None:
            self.group = Offsets()
            for offset, batch in enumerate(self.log):
                self._replay(batch, offset)

        def lead() -> None:
            self.is_up = True
            # A new leader counts what all have; that is everything it has, a moment later.
            end, life = len(self.log), self.life

            def caught_up() -> None:
                if life == self.life:
                    self.high_watermark = max(self.high_watermark, end)

            self.world.after(rng.uniform(0.0, 0.5), caught_up)

        self.world.after(rng.choice((0.0, rng.uniform(0.0, 5.0))), lead)

    def _read(self) -> tuple[Producers, list[AbortedTxn]]:
        """Producers and aborted transactions as the log tells them; `replicated`: what is there was checked once."""
        producers, aborted = Producers(), []
        for offset, batch in enumerate(self.log):
            if batch.value is not None:
                producers.append(
                    batch.producer_id,
                    batch.epoch,
                    batch.sequence,
                    0,
                    offset,
                    WALL_START_MS,
                    True,
                    from_client=False,
                    replicated=True,
                )
            else:
                entry = producers.end_transaction(
                    batch.producer_id,
                    batch.epoch,
                    batch.coordinator_epoch,
                    batch.commit,
                    offset,
                    WALL_START_MS,
                    replicated=True,
                )
                if entry is not None:
                    aborted.append(entry)
            producers.commit(offset + 1)
        return producers, aborted

    # -- readers ----------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def visible(self) -> list[Any]:
        """What a read_committed consumer reads from the start."""
        end = self.last_stable_offset
        coming = sorted(
            (each for each in self.aborted if each.first_offset < end), key=lambda each: each.first_offset, reverse=True
        )
        skipped: set[int] = set()
        values = []
        for offset, batch in enumerate(self.log[:end]):
            while coming and coming[-1].first_offset <= offset:
                skipped.add(coming.pop().producer_id)
            if batch.value is None:
                if not batch.commit:
                    skipped.discard(batch.producer_id)
            elif batch.producer_id not in skipped:
                values.append(batch.value)
        return values
