"""Transactions in the broker: one `barnabas.coordinator.txn.TxnShard` per partition of `__transaction_state` that is
led here.

`barnabas.server.coordinators.runtime` turns results into records and answers, and loads and unloads partitions; here
are the operations on transactional ids, and what they need: producer ids (`barnabas.server.coordinators.producer_ids`)
and markers in partitions (`barnabas.server.coordinators.marker_sender`). A loaded partition is served when all of it is
committed, however long that takes: no marker may be sent for a decision that may still be lost. Until then requests are
answered with COORDINATOR_LOAD_IN_PROGRESS.

A change that is not committed within `request.timeout.ms` is answered COORDINATOR_NOT_AVAILABLE; the id stays busy
until it is committed. (Apache Kafka waits as long as the transaction's own time-out, after which the client has given
up.)

A broker whose clients use no transactions does not load the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.coordinator import Callback, Now, Record, Reply, Result, partition_for
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
)
from barnabas.replication import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.loading import Replayed, WithoutTransactions
from barnabas.server.coordinators.runtime import CoordinatorRuntime
from barnabas.server.network.peers import Connect
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import HasWaiters, contain
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.coordinator.txn import Marked, MarkersToWrite, NeedProducerId, TxnConfig, TxnShard
    from barnabas.server.coordinators.marker_sender import MarkerSender

WriteMarkers = Callable[[WriteTxnMarkersRequest, Any], None]
"""Appends markers to partitions that this broker leads; answers the token once with WriteTxnMarkersResponse."""

TopicPartition = tuple[str, int]
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TxnResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def txn_config(config: BrokerConfig, transaction_version: int) -> TxnConfig:
    """The machine's settings out of the broker's. transaction_version: the level that is finalised."""
    from barnabas.coordinator.txn import TxnConfig

    return TxnConfig(
        transaction_max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        transaction_version=transaction_version,
    )


class TransactionCoordinator:
    """All transactional ids this broker coordinates; see the module. It is its runtime's `Subject`. `run` must be
    running for partitions to be loaded, ids to be fetched and removed, markers to be sent, and the topic to be created.

    next_producer_id: as `ProducerIds.next_id`. write_markers: for partitions that are led here; connect: to other
    brokers. partition_count: of a topic as the store knows it, as `barnabas.replication.partition_count`.
    transaction_version: the level that is finalised; `config_changed` when it has changed. runtime: its shards, to
    inspect them. The runtime's own methods, for `barnabas.server.partitions.registry` and for FindCoordinator: `lead`,
    `resign`, `resign_all`, `write_failed`; `place`, `want_topic`.
    """

    topic = TRANSACTION_STATE_TOPIC
    log = logging.getLogger("barnabas.transactions")
    open_s: float | None = None

    def __init__(
        self,
        ground: CoordinatorGround,
        *,
        next_producer_id: Callable[[], Awaitable[int]],
        write_markers: WriteMarkers,
        connect: Connect,
        partition_count: Callable[[str], Awaitable[int | None]],
        transaction_version: Callable[[], int],
    ) -> None:
        self._image = ground.current_image
        self._config = ground.current_config
        self._partitions = ground.partitions
        self._ground = ground
        self._next_producer_id = next_producer_id
        self._write_markers = write_markers
        self._connect = connect
        self._partition_count = partition_count
        self._transaction_version = transaction_version
        self._nursery: trio.Nursery | None = None
        self._markers: MarkerSender | None = None
        self.runtime: CoordinatorRuntime[TxnShard] = CoordinatorRuntime(ground, self)
        self._shards = self.runtime.shards
        self._results = self.runtime.results
        self.lead = self.runtime.lead
        self.resign = self.runtime.resign
        self.resign_all = self.runtime.resign_all
        self.write_failed = self.runtime.write_failed
        self.place = self.runtime.topic.place
        self.want_topic = self.runtime.topic.want

    # -- what the runtime asks ---------------------------------------------------------------------

    def new_shard(self, partition: Partition) -> TxnShard:
        """Part of `Subject`."""
        from barnabas.coordinator.txn import TxnShard

        return TxnShard(self._txn_config(), partition.leader_epoch)

    def _txn_config(self) -> TxnConfig:
        return txn_config(self._config(), self._transaction_version())

    def replayed(self, shard: TxnShard) -> Replayed:
        """Part of `Subject`."""
        return WithoutTransactions(lambda key, value, offset: shard.replay(key, value))

    def replay_decided(
        self, shard: TxnShard, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        """Part of `Subject`."""
        store = shard.store
        for key, value, _ in records:
            store.replay(key, value)

    def activated(self, led: CoordinatedShard[TxnShard]) -> None:
        """Part of `Subject`."""

    def unloaded(self, led: CoordinatedShard[TxnShard], now: Now) -> Iterable[Reply]:
        """Part of `Subject`."""
        led.shard.unload()
        if self._markers is not None:
            self._markers.remove(led)
        return ()

    @property
    def required_acks(self) -> int:
        """Part of `Subject`: all in-sync replicas must have a decision before it is answered or acted upon."""
        return -1

    @property
    def commit_timeout_s(self) -> float:
        """Part of `Subject`."""
        return self._config().get_int("request.timeout.ms") / 1000

    def size(self, shard: TxnShard) -> int:
        """Part of `Subject`."""
        return len(shard.ids)

    def carry_out(self, led: CoordinatedShard[TxnShard], effect: MarkersToWrite | NeedProducerId) -> None:
        """Part of `Subject`."""
        from barnabas.coordinator.txn import MarkersToWrite

        if isinstance(effect, MarkersToWrite):
            self._sender().add(led, effect)
        else:
            assert self._nursery is not None, "not running"
            self._nursery.start_soon(self._fetch_id, led, effect)

    async def _fetch_id(self, led: CoordinatedShard[TxnShard], wanted: NeedProducerId) -> None:
        try:
            try:
                result = wanted.given(await self._next_producer_id(), self._ground.time())
            except KafkaError as error:
                result = wanted.refused(error.code, self._ground.time())
            except Exception as error:
                contain(self.log, "getting a producer id for a transactional id", error)
                result = wanted.refused(ErrorCode.UNKNOWN_SERVER_ERROR, self._ground.time())
            # If the partition was lost meanwhile the machine's result is an error without records.
            self._results.apply(led, result)
        except Exception as error:
            contain(self.log, f"continuing in {led!r} with a producer id", error, wanted.refused)
        self._partitions.write_staged()

    # -- markers -----------------------------------------------------------------------------------

    def _sender(self) -> MarkerSender:
        if self._markers is None:
            from barnabas.server.coordinators.marker_sender import MarkerSender

            assert self._nursery is not None, "not running"
            self._markers = MarkerSender(
                self._nursery,
                self._ground.timers,
                self._partitions.broker_id,
                self._connect,
                write_here=self._write_markers,
                marked=self._marked,
                soon=self.runtime.results.after_write,
                current_image=self._image,
                current_config=self._config,
                partition_count=self._partition_count,
                now=self._ground.now,
            )
        return self._markers

    def _marked(self, marked: Marked) -> None:
        led = marked.source
        assert isinstance(led, CoordinatedShard)
        if not led.is_closed:
            self._results.apply(led, led.shard.marked(marked, self._ground.time()))

    @property
    def unmarked(self) -> int:
        """How many partitions still need a marker of a transaction that is decided here."""
        return 0 if self._markers is None else len(self._markers)

    # -- tasks -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, deliver, remove expired ids, and create the topic, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self.runtime.run)
                nursery.start_soon(
                    self.runtime.run_upkeep, "removing transactional ids", self._removal_interval_ms, _expired
                )
        finally:
            if self._markers is not None:
                await self._markers.close()

    def _removal_interval_ms(self) -> int:
        return self._config().get_int("transaction.remove.expired.transaction.cleanup.interval.ms")

    def config_changed(self) -> None:
        """The broker's settings were replaced, or another transaction.version was finalised."""
        for led in self._shards.values():
            led.shard.set_config(self._txn_config())

    # -- operations; each raises KafkaError as `_of` does

    def _of(self, transactional_id: str) -> CoordinatedShard[TxnShard]:
        """The partition of an id. Raises KafkaError INVALID_REQUEST (no id), NOT_COORDINATOR (led elsewhere, or no
        topic) or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        return self.runtime.active(transactional_id)

    def init_producer_id(self, request: InitProducerIdRequest, version: int, token: Any) -> None:
        """For a request with a transactional id. Answers InitProducerIdResponse."""
        led = self._of(request.transactional_id or "")
        self._results.apply(led, led.shard.init_producer_id(request, version, token, self._ground.time()))

    def add_offsets(self, request: AddOffsetsToTxnRequest, version: int, token: Any) -> None:
        """Answers AddOffsetsToTxnResponse. The group's partition becomes part of the transaction; where there is no
        `__consumer_offsets` yet it is the one that the settings would give it.
        """
        led = self._of(request.transactional_id)
        topic = self._image().topics.get(GROUP_METADATA_TOPIC)
        count = len(topic.partitions) if topic is not None else self._config().get_int("offsets.topic.num.partitions")
        place = (GROUP_METADATA_TOPIC, partition_for(request.group_id, count))
        self._results.apply(led, led.shard.partitions.add_offsets(request, version, place, token, self._ground.time()))

    def end(self, request: EndTxnRequest, version: int, token: Any) -> None:
        """Answers EndTxnResponse."""
        led = self._of(request.transactional_id)
        self._results.apply(led, led.shard.ends.end(request, version, token, self._ground.time()))

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        return self._of(transactional_id).shard.describe(transactional_id)

    def listed(
        self, request: ListTransactionsRequest, matches: Callable[[str], bool] | None
    ) -> Steps[ListTransactionsResponse]:
        """The ids coordinated here, as far as the filters let them through; matches: the filter by pattern, compiled.
        None of them, and COORDINATOR_LOAD_IN_PROGRESS, while some are being loaded. Raises nothing. In steps.
        """
        from barnabas.coordinator.txn import unknown_state_filters

        if not all(led.is_active for led in self._shards.values()):
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        now = self._ground.time()
        response = ListTransactionsResponse(unknown_state_filters=unknown_state_filters(request.state_filters))
        states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
        for led in list(self._shards.values()):
            for state in led.shard.looked_through(states, producer_ids, request.duration_filter, matches, now):
                if state is not None:
                    response.transaction_states.append(state)
                yield 1
        return response

    # -- AddPartitionsToTxn ------------------------------------------------------------------------

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int, token: Any) -> None:
        """AddPartitionsToTxn of any version; answers AddPartitionsToTxnResponse, now or later. Errors are in the
        answer.
        """
        if version >= 4:
            transactions = request.transactions
        else:
            transactions = [
                _Transaction(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    topics=request.v3_and_below_topics,
                )
            ]
        answer = _AddAnswer(token, version, len(transactions))
        for index, transaction in enumerate(transactions):
            self._add(transaction, version, partial(answer.fill, index), answer)
        if not transactions:
            token.reply(AddPartitionsToTxnResponse())

    def _add(
        self, transaction: _Transaction, version: int, answered: Callable[[_TxnResult], None], answer: _AddAnswer
    ) -> None:
        partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
        known = self._image().topics
        missing = {
            (topic, index)
            for topic, index in partitions
            if topic not in known or not 0 <= index < len(known[topic].partitions)
        }

        def respond(code_of: Callable[[TopicPartition], ErrorCode]) -> None:
            answered(_txn_result(transaction, code_of))

        if missing:
            respond(
                lambda partition: (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
                )
            )
            return
        who = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        try:
            led = self._of(transaction.transactional_id)
        except KafkaError as error:
            refusal = error.code
            respond(lambda _: refusal)
            return
        if transaction.verify_only:
            respond(led.shard.partitions.verify_partitions(*who, partitions).__getitem__)
        else:
            collect = Callback(lambda code: respond(lambda _: code), answer.release_waiters)
            self._results.apply(
                led,
                led.shard.partitions.add_partitions(*who, frozenset(partitions), version, collect, self._ground.time()),
            )


class _AddAnswer:
    """Answers an AddPartitionsToTxn when all its transactions have their results."""

    def __init__(self, token: Any, version: int, count: int) -> None:
        self._token = token
        self._version = version
        self._results: list[_TxnResult | None] = [None] * count
        self._owed = count

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._token.release_waiters() if isinstance(self._token, HasWaiters) else "AddPartitionsToTxn"

    def fill(self, index: int, result: _TxnResult) -> None:
        self._results[index] = result
        self._owed -= 1
        if self._owed:
            return
        results = [result for result in self._results if result is not None]
        if self._version >= 4:
            self._token.reply(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            self._token.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))


def _txn_result(transaction: _Transaction, code_of: Callable[[TopicPartition], ErrorCode]) -> _TxnResult:
    return _TxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            _TopicResult(
                name=topic.name,
                results_by_partition=[
                    _PartitionResult(partition_index=index, partition_error_code=code_of((topic.name, index)))
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def _expired(shard: TxnShard, now: Now) -> Iterable[Result]:
    return shard.remove_expired(now)
