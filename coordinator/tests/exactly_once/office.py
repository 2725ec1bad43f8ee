"""The transaction coordinator's side: `TxnShard` and `MarkerQueues` over a log of three replicas that is a list.

An `Office` is one leader epoch. It appends at once; what it appended becomes committed a little later, or too late, or
never: an office that was voted out may not know it for a while, and what it appends then is on its own fork of the log
only. Its successor starts with everything committed, and perhaps with some of the rest, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.machine import Record, Result
from barnabas.coordinator.tests.exactly_once.world import Answer, World
from barnabas.coordinator.txn import Leader, Marked, MarkerQueues, MarkersToWrite, NeedProducerId, TxnConfig, TxnShard
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinator.tests.exactly_once.partitions import Partition

TopicPartition = tuple[str, int]
COMMIT_TIMEOUT_S = 5.0
MARKER_TIMEOUT_S = 3.0
EPOCH_BUMPING = 2
"""The transaction.version from which on the end of a transaction bumps the epoch."""


class Token:
    """Who waits for an answer; it comes once."""

    __slots__ = ("answer", "is_answered", "what")

    def __init__(self, answer: Answer, what: str) -> None:
        self.answer = answer
        self.what = what
        self.is_answered = False


class Office:
    """See the module. `state` is what all offices share."""

    def __init__(self, world: World, state: Offices, log: list[Record], epoch: int) -> None:
        self.world = world
        self.state = state
        self.log = log
        self.epoch = epoch
        self.committed_to = len(log)
        self.is_in_office = True
        """False: voted out. It may not know."""
        self.is_open = True
        """It runs, and believes to be in office."""
        self.is_dead = False
        self.open_tokens: set[Token] = set()
        self._held: deque[tuple[int, Result]] = deque()
        self.shard = TxnShard(state.config, epoch)
        self.queues = MarkerQueues()
        for record in log:
            self.shard.replay(record.key, record.value)
        self._run(self.shard.loaded(world.now))
        self._tick()

    # -- requests ---------------------------------------------------------------------------------

    def init(self, request: InitProducerIdRequest, answer: Answer) -> None:
        token = self._token(answer, f"init {request.transactional_id}")
        self._run(self.shard.init_producer_id(request, 5, token, self.world.now))

    def add(
        self, name: str, producer_id: int, epoch: int, partitions: set[TopicPartition], version: int, answer: Answer
    ) -> None:
        """Answers an error code."""
        token = self._token(answer, f"add {name}")
        self._run(self.shard.add_partitions(name, producer_id, epoch, partitions, version, token, self.world.now))

    def add_offsets(self, request: AddOffsetsToTxnRequest, partition: TopicPartition, answer: Answer) -> None:
        token = self._token(answer, f"add offsets {request.transactional_id}")
        self._run(self.shard.add_offsets(request, 4, partition, token, self.world.now))

    def verify(self, name: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        return self.shard.verify_partitions(name, producer_id, epoch, [partition])[partition]

    def end(self, request: EndTxnRequest, version: int, answer: Answer) -> None:
        token = self._token(answer, f"end {request.transactional_id}")
        self._run(self.shard.end(request, version, token, self.world.now))

    def _token(self, answer: Answer, what: str) -> Token:
        token = Token(answer, what)
        self.open_tokens.add(token)
        return token

    # -- what the driver does ---------------------------------------------------------------------

    def _run(self, result: Result) -> None:
        self._answer(result.replies)
        refusal = self.state.refusal()
        if result.records and refusal is not None:
            assert result.failed is not None
            self._run(result.failed(refusal, False, self.world.now))
            return
        for record in result.records:
            self.log.append(record)
            self.shard.replay(record.key, record.value)
        for effect in result.effects:
            self._carry_out(effect)
        if result.records or result.held:
            self._held.append((len(self.log), result))
            end = len(self.log)
            if end > self.committed_to:
                self.world.after(self.state.lag_s(), lambda: self._replicated(end))
                self.world.after(COMMIT_TIMEOUT_S, self._time_out_commits(end))
            self._committed()
        self._send_markers()

    def _replicated(self, end: int) -> None:
        if self.is_open and self.is_in_office and end > self.committed_to:
            self.committed_to = end
            self._committed()
            self._send_markers()

    def _committed(self) -> None:
        while self._held and self._held[0][0] <= self.committed_to:
            _, result = self._held.popleft()
            self._answer(result.held)
            if result.committed is not None:
                self._run(result.committed(self.world.now))

    def _time_out_commits(self, end: int) -> Callable[[], None]:
        def act() -> None:
            for i, (due, result) in enumerate(self._held):
                if due > end or not self.is_open:
                    break
                if result.held:
                    assert result.failed is not None
                    told = result.failed(ErrorCode.REQUEST_TIMED_OUT, True, self.world.now)
                    assert not told.records
                    self._answer(told.replies)
                    self._held[i] = (due, result._replace(held=()))

        return act

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, MarkersToWrite):
            self.queues.add(self.epoch, effect)
            return
        assert isinstance(effect, NeedProducerId)

        def fetched() -> None:
            # Also when the partition is led elsewhere by now, but not when the process is gone.
            if self.is_dead:
                return
            if self.world.rng.random() < self.state.no_ids:
                self._run(effect.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.world.now))
            else:
                self.state.last_id += 1
                self._run(effect.given(self.state.last_id, self.world.now))

        self.world.after(self.world.rng.uniform(0.001, 0.05), fetched)

    def _answer(self, replies: Any) -> None:
        for token, response in replies:
            assert not token.is_answered, f"{token.what} was answered twice: {response}"
            token.is_answered = True
            self.open_tokens.discard(token)
            token.answer(response)

    def _tick(self) -> None:
        """Look at the machine's deadlines every 50 ms, as coarse as a busy broker."""
        if not self.is_open:
            return
        for _ in range(1000):
            due = self.shard.deadline()
            if due is None or due > self.world.seconds:
                break
            self._run(self.shard.expire(self.world.now))
        else:
            raise AssertionError("time does not pass")
        self._send_markers()
        self.world.after(0.05, self._tick)

    def remove_expired(self) -> None:
        for result in self.shard.remove_expired(self.world.now):
            self._run(result)

    # -- markers ----------------------------------------------------------------------------------

    def _send_markers(self) -> None:
        if not self.is_open:
            return
        to_send, gone = self.queues.requests(self.state.leader_of, self.world.seconds)
        assert not gone
        for broker_id, request in to_send:
            # A marker that was sent again and comes late ends the *next* transaction of the same epoch: the hole in
            # protocols before transaction.version 2 that KIP-890 closed by bumping the epoch.
            bumps = all(marker.transaction_version >= EPOCH_BUMPING for marker in request.markers)
            self.world.ask(
                lambda answer, broker_id=broker_id, request=request: self.state.write_markers(  # type: ignore[misc]
                    broker_id, request, answer
                ),
                lambda response, broker_id=broker_id: self._marked(broker_id, response),  # type: ignore[misc]
                MARKER_TIMEOUT_S,
                may_be_late=bumps,
            )

    def _marked(self, broker_id: int, response: WriteTxnMarkersResponse | None) -> None:
        if not self.is_open:
            return
        marked: list[Marked] = self.queues.answered(broker_id, response, self.world.seconds)
        for each in marked:
            self._run(self.shard.marked(each, self.world.now))
        self._send_markers()

    # -- the end ----------------------------------------------------------------------------------

    def resign(self) -> None:
        """It is notified of its successor: waiting clients get NOT_COORDINATOR."""
        if not self.is_open:
            return
        self.is_open = False
        self.shard.unload()
        self.queues.remove(self.epoch)
        held, self._held = self._held, deque()
        for _, result in held:
            assert result.failed is not None
            told = result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, self.world.now)
            assert not told.records
            assert not told.effects
            if result.held:
                self._answer(told.replies)

    def die(self) -> None:
        """Its process is gone: no client gets an answer."""
        self.is_open = False
        self.is_dead = True
        self.open_tokens.clear()


class Offices:
    """Who is in office, what clients find there, and how well the log does."""

    def __init__(self, world: World, config: TxnConfig, partitions: dict[TopicPartition, Partition]) -> None:
        self.world = world
        self.config = config
        self.partitions = partitions
        self.last_id = 1000
        self.no_ids = 0.0
        self.refuses: ErrorCode | None = None
        self.slow = False
        self.elections = 0
        self.former: list[Office] = []
        """Voted out, and do not know it yet."""
        self.present: Office | None = None

    def begin(self, log: list[Record]) -> None:
        """The first one takes office."""
        self.present = Office(self.world, self, log, 0)

    def refusal(self) -> ErrorCode | None:
        """What the log says to an append."""
        return self.refuses if self.refuses is not None and self.world.rng.random() < 0.7 else None

    def lag_s(self) -> float:
        """How long until an append is committed."""
        rng = self.world.rng
        return rng.uniform(0.5, 12.0) if self.slow and rng.random() < 0.5 else rng.uniform(0.001, 0.01)

    def leader_of(self, topic: str, index: int) -> int | Leader:
        """Markers are sent to where the leader is believed to be: a broker per leader epoch."""
        partition = self.partitions[topic, index]
        return partition.address if partition.is_up else Leader.UNKNOWN

    def write_markers(self, broker_id: int, request: Any, answer: Answer) -> None:
        """A WriteTxnMarkers request arrives."""
        results: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = []
        waiting = 1

        def one_is_done() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                answer(WriteTxnMarkersResponse(markers=results))

        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                told: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = []
                topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=told))
                for index in topic.partition_indexes:
                    waiting += 1

                    def written(code: ErrorCode, told: Any = told, index: int = index) -> None:
                        told.append(
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                        )
                        one_is_done()

                    self.partitions[topic.name, index].write_marker(broker_id, marker, written)
            results.append(
                WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
        one_is_done()

    def find(self) -> Office | None:
        """Whom a client asks: sometimes one that is out and does not know it."""
        rng = self.world.rng
        former = [office for office in self.former if office.is_open]
        if former and rng.random() < 0.3:
            return rng.choice(former)
        return self.present

    # -- elections --------------------------------------------------------------------------------

    def elect(self) -> None:
        """The office falls, and after a while there is another."""
        before, rng = self.present, self.world.rng
        if before is None:
            return
        self.elections += 1
        self.present = None
        before.is_in_office = False
        kept = rng.randint(before.committed_to, len(before.log))
        log = before.log[:kept]
        kind = rng.choice(("dies", "knows", "does not know"))
        self.world.note(f"office {before.epoch} {kind}; {kept} of {len(before.log)} records stay")
        if kind == "dies":
            before.die()
        elif kind == "knows":
            before.resign()
        else:
            before.log = list(before.log)
            self.former.append(before)
            self.world.after(rng.uniform(0.1, 9.0), before.resign)

        def take_office() -> None:
            self.present = Office(self.world, self, log, before.epoch + 1)
            self.world.note(f"office {before.epoch + 1}")

        self.world.after(rng.choice((0.0, rng.uniform(0.0, 6.0))), take_office)


def error_of(response: Any) -> ErrorCode:
    """The error of whatever the machine answers."""
    return ErrorCode(getattr(response, "error_code", response))
