"""Asks transaction coordinators, on behalf of partitions: is this partition part of that producer's open transaction?
Or else: make it part of it (KIP-890).

A batch that opens a transaction in a partition is let in only if the coordinator knows of it, so that it will get an
end marker there. Clients of transaction.version 2 do not add partitions themselves; the leader does it for them.

    Produce, TxnOffsetCommit → `check` → one AddPartitionsToTxn per broker at a time, with all that came meanwhile
                             ← errors by partition, none for those that are confirmed

The coordinator may be this broker (a direct call). What is asked again for the same id while it waits is merged if it
comes from the same producer; of two epochs the lower one is fenced (47). A broker that does not know version 4 of the
request (before 3.5) cannot verify, and then nobody does. Source: `AddPartitionsToTxnManager` and
`ReplicaManager.handleProduceAppend` of Apache Kafka 4.3.

Differences: there the earlier of two requests for the same id and epoch fails with a network error, and a coordinator
that says nothing is waited for `request.timeout.ms`; here only until the picture shows the id elsewhere, or in another
leader epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.replication import Endpoint, Image, PartitionImage
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.runtime.containment import contain

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.runtime.timers import Timers

log = logging.getLogger("barnabas.transactions")

OLDEST_VERSION = 4
NEWEST_VERSION = 5
_LOOK_S = 1.0
"""How often coordinators that are waited for are compared with the picture. Seconds."""

TopicPartition = tuple[str, int]
Errors = dict[TopicPartition, ErrorCode]
Done = Callable[[Errors], None]
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Operation(Enum):
    """What is asked, and which errors the client knows; it follows from the version of its request."""

    VERIFY_FOR_OLD = "verify; the client does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "make it part of the transaction: transaction.version 2"

    @property
    def bumps_epoch(self) -> bool:
        """The client has transaction.version 2."""
        return self is Operation.ADD


def operation_of_produce(version: int) -> Operation:
    if version >= 12:
        return Operation.ADD
    return Operation.VERIFY if version == 11 else Operation.VERIFY_FOR_OLD


def operation_of_offset_commit(version: int) -> Operation:
    """For TxnOffsetCommit."""
    if version >= 5:
        return Operation.ADD
    return Operation.VERIFY if version == 4 else Operation.VERIFY_FOR_OLD


class Coordinator(Protocol):
    """The transactional ids of this broker (`barnabas.server.coordinators.transactions.TxnShards`)."""

    def place(self, key: str) -> PartitionImage | None: ...

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int, token: Any) -> None: ...


class _Ask:
    """What is to be asked for one transactional id, and who waits for it."""

    __slots__ = ("operation", "partitions", "producer_epoch", "producer_id", "transactional_id", "waiting")

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int, operation: Operation) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.operation = operation
        self.partitions: dict[TopicPartition, None] = {}
        self.waiting: list[tuple[tuple[TopicPartition, ...], Done]] = []

    def is_like(self, other: _Ask) -> bool:
        return (self.producer_id, self.producer_epoch, self.operation) == (
            other.producer_id,
            other.producer_epoch,
            other.operation,
        )

    def add(self, partitions: Iterable[TopicPartition], done: Done) -> None:
        wanted = tuple(partitions)
        self.partitions.update(dict.fromkeys(wanted))
        self.waiting.append((wanted, done))

    def told(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        for wanted, done in self.waiting:
            _call(done, {each: errors[each] for each in wanted if errors.get(each)})

    def refused(self, code: ErrorCode) -> None:
        self.told(dict.fromkeys(self.partitions, code))

    def transaction(self) -> _Transaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return _Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=self.operation is not Operation.ADD,
            topics=[_Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
        )


class _Lane:
    """Requests that must not overtake one another: to a broker; to ourselves those of one id."""

    __slots__ = ("asked", "broker_id", "is_busy", "scope", "waiting")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.is_busy = False
        self.asked: dict[str, tuple[int, int]] = {}
        """By transactional id: leader and leader epoch of its partition when another broker was asked."""
        self.scope = trio.CancelScope()
        self.waiting: dict[str, _Ask] = {}

    def take(self) -> list[_Ask]:
        asks, self.waiting = list(self.waiting.values()), {}
        return asks


class _Answer:
    """The token of a direct call, answered once; None: the answer will not come."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[AddPartitionsToTxnResponse | None], None]) -> None:
        self._answered: Callable[[AddPartitionsToTxnResponse | None], None] | None = answered

    def reply(self, response: AddPartitionsToTxnResponse | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(response)

    def let_go(self) -> str:
        """Part of `Concerned`."""
        self.reply(None)
        return "this broker's own question to its coordinator"


class TxnVerification:
    """See the module. One per broker; `run` must be running for other brokers to be asked."""

    def __init__(
        self,
        coordinator: Coordinator,
        partitions: Partitions,
        timers: Timers,
        connect: Connect,
        *,
        current_config: Callable[[], BrokerConfig],
        current_image: Callable[[], Image],
        now: Callable[[], float],
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._timers = timers
        self._connect = connect
        self._config = current_config
        self._image = current_image
        self._now = now
        self._own_id = current_config().broker_id
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._peers: dict[int, PeerConnection] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def is_enabled(self) -> bool:
        return self._config().get_bool("transaction.partition.verification.enable")

    async def run(self) -> None:
        """Serve for ever."""
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await trio.sleep(_LOOK_S)
                    try:
                        self._look()
                    except Exception as error:
                        contain(log, "looking for coordinators that have moved", error)
        finally:
            self._nursery = None
            for peer in self._peers.values():
                await peer.close()

    # -- what is asked -----------------------------------------------------------------------------

    def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        operation: Operation,
        done: Done,
    ) -> None:
        """Call `done` once, perhaps at once, with the errors of those of `partitions` that are not confirmed. Outside
        of a round it is followed by the round's write.

        The errors are a producer's: 47, 48, 49, 51, 120, and NETWORK_EXCEPTION, 14, 15, 16 when nobody could say.
        """
        ask = _Ask(transactional_id, producer_id, producer_epoch, operation)
        ask.add(partitions, done)
        self._submit(ask)

    def tries_again(self, operation: Operation, errors: Errors, since: float, again: Callable[[], None]) -> bool:
        """Whether to look once more, with `again`, which is called a little later; followed by the round's write.

        The next transaction of a client of version 2 may begin while the markers of the last one are on their way (51);
        that is usual and soon over. What was verified before that marker is worth nothing after it, so `again` begins
        anew. since: when the request came, in seconds.
        """
        if operation is not Operation.ADD or ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values():
            return False
        config = self._config()
        patience_ms = min(
            config.get_int("add.partitions.to.txn.retry.backoff.max.ms"), config.get_int("request.timeout.ms")
        )
        if self._now() - since >= patience_ms / 1000:
            return False

        def act() -> None:
            again()
            self._partitions.write_staged()

        self._timers.after(config.get_int("add.partitions.to.txn.retry.backoff.ms") / 1000, act)
        return True

    def _submit(self, ask: _Ask) -> None:
        place = self._coordinator.place(ask.transactional_id)
        if place is None or (place.leader != self._own_id and self._endpoint(place.leader) is None):
            ask.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        is_own = place.leader == self._own_id
        key = (place.leader, ask.transactional_id if is_own else "")
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(place.leader)
        earlier = lane.waiting.get(ask.transactional_id)
        if earlier is not None:
            if ask.producer_epoch < earlier.producer_epoch:
                ask.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            if ask.is_like(earlier):
                for wanted, done in ask.waiting:
                    earlier.add(wanted, done)
                return
            is_older = earlier.producer_epoch < ask.producer_epoch
            earlier.refused(ErrorCode.INVALID_PRODUCER_EPOCH if is_older else ErrorCode.NETWORK_EXCEPTION)
        lane.waiting[ask.transactional_id] = ask
        if not lane.is_busy:
            lane.is_busy = True
            if is_own:
                self._ask_ourselves(key, lane)
            elif self._nursery is not None:
                self._nursery.start_soon(self._ask_others, key, lane)

    # -- this broker -------------------------------------------------------------------------------

    def _ask_ourselves(self, key: tuple[int, str], lane: _Lane) -> None:
        asks = lane.take()
        if not asks:
            del self._lanes[key]
            return
        request = AddPartitionsToTxnRequest(transactions=[ask.transaction() for ask in asks])
        answer = _Answer(partial(self._own_answer, key, lane, asks))
        try:
            self._coordinator.add_partitions(request, NEWEST_VERSION, answer)
        except Exception as error:
            contain(log, "asking this broker's coordinator", error, answer)

    def _own_answer(
        self, key: tuple[int, str], lane: _Lane, asks: list[_Ask], response: AddPartitionsToTxnResponse | None
    ) -> None:
        self._heard(asks, response)
        self._ask_ourselves(key, lane)

    @staticmethod
    def _heard(asks: list[_Ask], response: AddPartitionsToTxnResponse | None) -> None:
        """What a coordinator says; None: nothing."""
        if response is not None:
            _take_in(asks, response)
            return
        for ask in asks:
            ask.refused(ErrorCode.NETWORK_EXCEPTION)

    # -- other brokers -----------------------------------------------------------------------------

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._config().inter_broker_listener)

    async def _ask_others(self, key: tuple[int, str], lane: _Lane) -> None:
        await trio.lowlevel.checkpoint()  # the rest of the round may have more
        while lane.waiting:
            asks = lane.take()
            lane.asked = {ask.transactional_id: self._where(ask.transactional_id) for ask in asks}
            response = None
            try:
                with trio.CancelScope() as lane.scope:
                    response = await self._ask(lane.broker_id, asks)
            except PeerError as error:
                log.warning("transactions of %d producers cannot be verified: %s", len(asks), error)
            except Exception as error:
                contain(log, f"verifying transactions of {len(asks)} producers", error)
            lane.asked = {}
            self._heard(asks, response)
            self._partitions.write_staged()
        del self._lanes[key]

    async def _ask(self, broker_id: int, asks: list[_Ask]) -> AddPartitionsToTxnResponse:
        """Raises PeerError."""
        peer = self._peers.get(broker_id)
        if peer is None:
            timeout_s = self._config().get_int("request.timeout.ms") / 1000
            name = f"broker-{self._own_id}-add-partitions-to-txn"
            peer = self._peers[broker_id] = PeerConnection(self._connect, name, timeout_s)
        endpoint = self._endpoint(broker_id)
        if endpoint is None:
            raise PeerError(f"broker {broker_id} is gone")
        newest = (await peer.versions(endpoint)).get(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 0))[1]
        if newest < OLDEST_VERSION:
            log.warning("broker %d cannot verify transactions; they go on unverified", broker_id)
            return AddPartitionsToTxnResponse()
        request = AddPartitionsToTxnRequest(transactions=[ask.transaction() for ask in asks])
        response: AddPartitionsToTxnResponse = await peer.ask(endpoint, request, min(newest, NEWEST_VERSION))
        return response

    def _where(self, transactional_id: str) -> tuple[int, int]:
        place = self._coordinator.place(transactional_id)
        return (-1, -1) if place is None else (place.leader, place.leader_epoch)

    def _look(self) -> None:
        """Wait no longer for a broker that does not coordinate any more what it was asked for."""
        for lane in self._lanes.values():
            if any(self._where(name) != before for name, before in lane.asked.items()):
                log.info("broker %d is not waited for: transactions have another coordinator", lane.broker_id)
                lane.scope.cancel()


def _take_in(asks: list[_Ask], response: AddPartitionsToTxnResponse) -> None:
    """Tell everybody what the coordinator said. What it says nothing of is confirmed, as in Apache Kafka."""
    code = response.error_code
    if code != ErrorCode.NONE:
        log.error("the coordinator refuses to verify transactions: error %d", code)
        # Clients know nothing of the brokers' permissions.
        told = ErrorCode.INVALID_TXN_STATE if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ErrorCode.of(code)
        for ask in asks:
            ask.refused(told)
        return
    from barnabas.coordinator.txn import verification_error  # who has no transactions need not load it

    results = {result.transactional_id: result for result in response.results_by_transaction}
    for ask in asks:
        errors: Errors = {}
        result = results.get(ask.transactional_id)
        for topic in () if result is None else result.topic_results:
            for row in topic.results_by_partition:
                knows = ask.operation is not Operation.VERIFY_FOR_OLD
                errors[topic.name, row.partition_index] = verification_error(
                    ErrorCode.of(row.partition_error_code), knows
                )
        ask.told(errors)


def _call(done: Done, errors: Errors) -> None:
    try:
        done(errors)
    except Exception as error:
        contain(log, "what waited for a transaction's verification", error, done)
