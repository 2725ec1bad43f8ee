"""A driver without a broker: one `TxnShard` over a log that is a list, a cluster that is a dict of partitions, under a
clock that tests move.

It does what the server's driver has to do, with every choice in the test's hands: whether the log refuses (`refuse`),
when writes become committed (`commit_lag`, `commit`), whether there are producer ids (`ids_wait`, `no_ids`), who leads
a partition and what it answers to a marker (`leaders`, `marker_error`), when the coordinator dies and is loaded again
(`restart`). Tokens are ints; each gets exactly one reply, or the kit raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.coordinator.machine import Now, Record, Result
from barnabas.coordinator.txn import Leader, MarkerQueues, MarkersToWrite, NeedProducerId, ToSend, TxnConfig, TxnShard
from barnabas.coordinator.txn.ids import TransactionalId
from barnabas.coordinator.txn.stored import parse_txn, txn_record, value_version
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersResponse,
)

WALL_START_MS = 1_700_000_000_000
A, B, C = ("t", 0), ("t", 1), ("u", 0)
OFFSETS = ("__consumer_offsets", 7)
TV2 = TxnConfig(transaction_version=2)


class Producer(NamedTuple):
    """What a client knows of itself."""

    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """What a partition leader wrote."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int


class TxnKit:
    """See the module."""

    def __init__(self, config: TxnConfig | None = None) -> None:
        self.config = config or TxnConfig()
        self.coordinator_epoch = 0
        self.shard = TxnShard(self.config, 0)
        self.queues = MarkerQueues()
        self.seconds = 0.0
        self.log: list[Record] = []
        self.committed_to = 0
        self.commit_lag = False
        self.refuse: ErrorCode | None = None
        self.answers: dict[int, Any] = {}
        self.open: set[int] = set()
        self._tokens = 0
        self._held: deque[tuple[int, Result]] = deque()
        self.ids_given = 1000
        self.no_ids = False
        self.ids_wait = False
        self.wanted_ids: list[NeedProducerId] = []
        self.markers_wait = False
        """Requests for markers stay in `sent` until `deliver`."""
        self.sent: list[ToSend] = []
        self.leaders: dict[tuple[str, int], int | Leader] = {}
        self.marker_errors: dict[tuple[str, int], ErrorCode] = {}
        self.partitions: dict[tuple[str, int], list[Marker]] = {}
        self.markers_asked: list[MarkersToWrite] = []
        self._settling = False
        self.shard.loaded(self.now)

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_START_MS + round(self.seconds * 1000))

    # -- what the driver does ---------------------------------------------------------------------

    def run(self, result: Result) -> None:
        self._deliver(result.replies)
        if result.records and self.refuse is not None:
            assert result.failed is not None
            self.run(result.failed(self.refuse, False, self.now))
            return
        for record in result.records:
            self.log.append(record)
            self.shard.replay(record.key, record.value)
        for effect in result.effects:
            self._carry_out(effect)
        if result.records or result.held:
            self._held.append((len(self.log), result))
        if not self.commit_lag:
            self.commit()
        self.settle()

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, MarkersToWrite):
            self.markers_asked.append(effect)
            self.queues.add(self.coordinator_epoch, effect)
        else:
            assert isinstance(effect, NeedProducerId)
            self.wanted_ids.append(effect)

    def settle(self) -> None:
        """Give the ids and write the markers that are wanted, unless the test keeps them back."""
        if self._settling:
            return
        self._settling = True
        try:
            while True:
                if self.wanted_ids and not self.ids_wait:
                    self.give_id()
                    continue
                # Requests that nobody carries out yet must not be made: their order is the test's.
                to_send, gone = self.queues.requests(self.leader_of, self.seconds)
                self.sent.extend(to_send)
                for marked in gone:
                    self.run(self.shard.marked(marked, self.now))
                if self.sent and not self.markers_wait:
                    self.deliver()
                elif not gone:
                    break
        finally:
            self._settling = False

    def give_id(self) -> None:
        wanted = self.wanted_ids.pop(0)
        if self.no_ids:
            self.run(wanted.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.now))
        else:
            self.ids_given += 1
            self.run(wanted.given(self.ids_given, self.now))

    def leader_of(self, topic: str, partition: int) -> int | Leader:
        return self.leaders.get((topic, partition), 1)

    def deliver(self, *, lost: bool = False, lost_answer: bool = False) -> None:
        """The oldest request for markers reaches its broker, or does not; and its answer comes back, or does not."""
        send = self.sent.pop(0)
        response = None if lost else self._write(send)
        for marked in self.queues.answered(send.broker_id, None if lost_answer else response, self.seconds):
            if marked.source == self.coordinator_epoch:
                self.run(self.shard.marked(marked, self.now))
        self.settle()

    def _write(self, send: ToSend) -> WriteTxnMarkersResponse:
        """What a broker does with a WriteTxnMarkers request."""
        results = []
        for marker in send.request.markers:
            topics = []
            for topic in marker.topics:
                told = []
                for partition in topic.partition_indexes:
                    code = self._append(send.broker_id, (topic.name, partition), marker)
                    told.append(
                        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                            partition_index=partition, error_code=code
                        )
                    )
                topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=told))
            results.append(
                WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
        return WriteTxnMarkersResponse(markers=results)

    def _append(self, broker_id: int, partition: tuple[str, int], marker: Any) -> ErrorCode:
        if partition in self.marker_errors:
            return self.marker_errors[partition]
        if self.leader_of(*partition) != broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = self.partitions.setdefault(partition, [])
        if any(each.coordinator_epoch > marker.coordinator_epoch for each in log):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if any(each.epoch > marker.producer_epoch for each in log if each.producer_id == marker.producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        log.append(
            Marker(marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
        )
        return ErrorCode.NONE

    def commit(self) -> None:
        """The high watermark reaches the end of the log."""
        self.committed_to = len(self.log)
        while self._held and self._held[0][0] <= self.committed_to:
            _, result = self._held.popleft()
            self._deliver(result.held)
            if result.committed is not None:
                self.run(result.committed(self.now))

    def time_out_commits(self) -> None:
        """The writes that are not committed yet take too long: clients are answered; they may be committed later."""
        for i, (end, result) in enumerate(self._held):
            if result.held:
                assert result.failed is not None
                told = result.failed(ErrorCode.REQUEST_TIMED_OUT, True, self.now)
                assert not told.records
                self._deliver(told.replies)
                self._held[i] = (end, result._replace(held=()))

    def restart(self, *, lose_uncommitted: bool = True) -> None:
        """The partition moves away and comes back: waiting clients get an error, the state is read from the log."""
        self.shard.unload()
        self.queues.remove(self.coordinator_epoch)
        held, self._held = self._held, deque()
        for _, result in held:
            assert result.failed is not None
            told = result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, self.now)
            assert not told.records
            assert not told.effects
            if result.held:
                self._deliver(told.replies)
        if lose_uncommitted:
            del self.log[self.committed_to :]
        self.committed_to = len(self.log)
        self.coordinator_epoch += 1
        self.shard = TxnShard(self.config, self.coordinator_epoch)
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.run(self.shard.loaded(self.now))
        self.advance(0)

    def _deliver(self, replies: Iterable[Any]) -> None:
        for token, response in replies:
            assert token in self.open, f"token {token} was answered twice: {response}"
            self.open.discard(token)
            self.answers[token] = response

    def token(self) -> int:
        self._tokens += 1
        self.open.add(self._tokens)
        return self._tokens

    def advance(self, seconds: float) -> None:
        """Let time pass, doing what is due at its time."""
        end = self.seconds + seconds
        self.settle()
        for _ in range(100_000):
            dues = [due for due in (self.shard.deadline(), self.queues.deadline()) if due is not None and due <= end]
            if not dues:
                self.seconds = end
                return
            self.seconds = max(self.seconds, min(dues))
            if (due := self.shard.deadline()) is not None and due <= self.seconds:
                self.run(self.shard.expire(self.now))
            self.settle()
        raise AssertionError("time does not pass")

    def set_config(self, config: TxnConfig) -> None:
        self.config = config
        self.shard.set_config(config)

    def check(self) -> None:
        """Replay gives the state that is alive."""
        version = value_version(self.config.transaction_version)
        replayed = TxnShard(self.config, 0)
        for record in self.log:
            replayed.replay(record.key, record.value)
        alive = {name: entry.logged for name, entry in self.shard.ids.items() if entry.logged is not None}
        assert alive.keys() == replayed.ids.keys()
        for name, txn in alive.items():
            assert txn is not None
            assert txn_record(name, txn, version) == txn_record(name, replayed.ids[name].logged, version)
            assert txn.last_epoch <= txn.producer_epoch or txn.producer_epoch == 0

    def last(self) -> Any:
        """The last record in the log."""
        return parse_txn(*self.log[-1][:2])

    # -- requests ---------------------------------------------------------------------------------

    def init(
        self,
        name: str = "x",
        *,
        owner: Producer | None = None,
        timeout_ms: int = 60_000,
        version: int = 5,
        **switches: bool,
    ) -> int:
        """Send an InitProducerId; returns its token."""
        token = self.token()
        producer_id, epoch = owner or Producer(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        self.run(self.shard.init_producer_id(request, version, token, self.now, **switches))
        return token

    def add(
        self, producer: Producer, *partitions: tuple[str, int], name: str = "x", version: int = 3
    ) -> ErrorCode | int:
        """AddPartitionsToTxn; the error, or the token if the answer waits."""
        token = self.token()
        self.run(self.shard.add_partitions(name, *producer, partitions, version, token, self.now))
        return token if token in self.open else self.error(token)

    def add_offsets(
        self, producer: Producer, *, name: str = "x", version: int = 4, partition: int = OFFSETS[1]
    ) -> ErrorCode:
        token = self.token()
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        self.run(self.shard.add_offsets(request, version, (OFFSETS[0], partition), token, self.now))
        return self.error(token)

    def verify(self, producer: Producer, *partitions: tuple[str, int], name: str = "x") -> list[ErrorCode]:
        told = self.shard.verify_partitions(name, *producer, partitions)
        return [told[partition] for partition in partitions]

    def end(self, producer: Producer, commit: bool = True, *, name: str = "x", version: int = 4) -> int:
        """Send an EndTxn; returns its token. Version 5 is what clients of transaction.version 2 send."""
        token = self.token()
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
        )
        self.run(self.shard.end(request, version, token, self.now))
        return token

    # -- answers ----------------------------------------------------------------------------------

    def waits(self, token: int) -> bool:
        return token in self.open

    def answer(self, token: int) -> Any:
        """The answer to `token`; it must be there, and is given once."""
        assert token not in self.open, f"token {token} still waits"
        return self.answers.pop(token)

    def error(self, token: int | ErrorCode) -> ErrorCode:
        answer = token if isinstance(token, ErrorCode) else self.answer(token)
        return ErrorCode(getattr(answer, "error_code", answer))

    def ended(self, token: int) -> Producer:
        """Who the producer is after its transaction."""
        answer = self.answer(token)
        assert isinstance(answer, EndTxnResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return Producer(answer.producer_id, answer.producer_epoch)

    def producer(self, name: str = "x", **init: Any) -> Producer:
        """An id and epoch from InitProducerId."""
        answer = self.answer(self.init(name, **init))
        assert isinstance(answer, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return Producer(answer.producer_id, answer.producer_epoch)

    def open_transaction(self, *partitions: tuple[str, int], name: str = "x", **init: Any) -> Producer:
        """A producer with an open transaction."""
        producer = self.producer(name, **init)
        assert self.add(producer, *(partitions or (A,)), name=name) == ErrorCode.NONE
        return producer

    def entry(self, name: str = "x") -> TransactionalId:
        return self.shard.ids[name]

    def state(self, name: str = "x") -> str:
        return self.shard.describe(name).transaction_state
