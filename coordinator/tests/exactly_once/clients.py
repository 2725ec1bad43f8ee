"""Transactional producers as stock clients are, and the answers they got.

An `Instance` is one process with a transactional id. It begins with InitProducerId, then does one transaction after the
other: partitions (transaction.version 0 adds them itself, 2 lets the leaders do it), records, sometimes the offsets of
a group, then EndTxn. What may be tried again is; what went wrong is aborted; who is fenced stops. It may crash at any
point, or sleep and go on as a zombie.

Not simulated, for only transaction.version 2 is safe from it: that a request of version 0 to the coordinator arrives
when its sender has given up, asked again and begun the next transaction; and that a client, having found the new
coordinator, goes back to one that was voted out and does not know it (which takes an EndTxn of version 0 for the
repetition of one it carried out, and answers with success).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.tests.exactly_once.office import Office, error_of
from barnabas.coordinator.tests.exactly_once.partitions import Produce
from barnabas.coordinator.tests.exactly_once.world import Answer, Call, Life
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinator.tests.exactly_once.run import Run

TopicPartition = tuple[str, int]
E = ErrorCode
TRY_AGAIN = {
    E.CONCURRENT_TRANSACTIONS,
    E.NOT_COORDINATOR,
    E.COORDINATOR_NOT_AVAILABLE,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.REQUEST_TIMED_OUT,
    E.NETWORK_EXCEPTION,
}
FENCED = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_ID_MAPPING}
TRIES = 8

Step = Generator["Call | float", Any, ErrorCode]


class Attempt:
    """One transaction. `records` of which the leader was asked to write them; `told`: the answer to EndTxn."""

    __slots__ = ("acknowledged", "asked_commit_at", "instance", "is_fenced_from", "key", "records", "told")

    def __init__(self, instance: Instance, key: int) -> None:
        self.instance = instance
        self.key = key
        self.records: list[tuple[TopicPartition, Any]] = []
        self.acknowledged: set[Any] = set()
        self.asked_commit_at: float | None = None
        self.told: bool | None = None
        """True: committed, False: aborted, None: neither."""

    def __repr__(self) -> str:
        return f"<{self.instance} transaction {self.key}, told {self.told}, asked to commit at {self.asked_commit_at}>"


class Dead(Exception):
    """It cannot go on."""


class Instance:
    """See the module."""

    def __init__(self, run: Run, name: str, number: int, adds: bool) -> None:
        self.run = run
        self.world = run.world
        self.name = name
        self.number = number
        self.adds = adds
        self.is_alive = True
        self.timeout_ms = run.world.rng.choice((2_000, 4_000, 10_000))
        self.producer_id = self.epoch = -1
        self.fenced_at: float | None = None
        """When another instance had got its epoch, and this one none since."""
        self._sequences: dict[TopicPartition, int] = {}
        self._newest_office = 0

    def __repr__(self) -> str:
        return f"{self.name}#{self.number} ({self.producer_id}, {self.epoch})"

    def life(self) -> Life:
        """Until it crashes, is fenced, or gives up."""
        try:
            yield from self._init()
            while True:
                yield self.world.rng.uniform(0.0, 0.3)
                yield from self._transaction()
        except Dead as dead:
            self.world.note(f"{self} ends: {dead}")
        finally:
            self.is_alive = False

    # -- requests ---------------------------------------------------------------------------------

    def _ask(self, serve: Callable[[Office, Answer], None], refusal: Any, may_be_late: bool = True) -> Call:
        """A request for the coordinator, whichever broker that is when it arrives."""

        def arrive(answer: Answer) -> None:
            office = self.run.offices.find()
            if office is None or office.epoch < self._newest_office:
                # Who has found the next one does not go back to one that was voted out and does not know it.
                answer(refusal)
            else:
                self._newest_office = office.epoch
                serve(office, answer)

        return Call(arrive, may_be_late)

    def _init(self) -> Generator[Call | float, Any, None]:
        """Get an epoch; raises Dead. Who has one already asks for the next (KIP-360)."""
        is_new = self.producer_id < 0
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )

        def serve(office: Office, answer: Answer) -> None:
            def told(response: InitProducerIdResponse) -> None:
                if response.error_code == E.NONE:
                    self.run.handed_out(self, response, is_new)
                answer(response)

            office.init(request, told)

        refusal = InitProducerIdResponse(error_code=E.NOT_COORDINATOR)
        for _ in range(3 * TRIES):
            response = yield self._ask(serve, refusal, may_be_late=is_new)
            code = None if response is None else error_of(response)
            if code == E.NONE:
                self._become(response.producer_id, response.producer_epoch)
                return
            if code is not None and code not in TRY_AGAIN:
                raise Dead(f"InitProducerId: {code.name}")
            yield 0.1
        raise Dead("InitProducerId: gave up")

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def _patiently(self, make: Callable[[], Call]) -> Step:
        """Ask again while that helps; the last error, REQUEST_TIMED_OUT if there is no answer."""
        code = E.REQUEST_TIMED_OUT
        for _ in range(TRIES):
            answer = yield make()
            code = E.REQUEST_TIMED_OUT if answer is None else error_of(answer)
            if code not in TRY_AGAIN:
                return code
            yield 0.1
        return code

    # -- a transaction ----------------------------------------------------------------------------

    def _transaction(self) -> Generator[Call | float, Any, None]:
        rng, run = self.world.rng, self.run
        attempt = run.attempt(self)
        places = rng.sample(run.data, rng.randint(1, len(run.data)))
        with_offsets = rng.random() < 0.4
        is_begun, is_sure = False, True
        code = E.NONE
        if not self.adds:
            code = yield from self._patiently(lambda: self._add_partitions(set(places)))
            is_begun = True
            if code == E.NONE and with_offsets:
                code = yield from self._patiently(self._add_offsets)
        for i in range(rng.randint(1, 4)):
            if code != E.NONE:
                break
            is_begun = True
            code = yield from self._write(attempt, rng.choice(places), (self.name, attempt.key, i))
            if rng.random() < 0.03:
                yield rng.uniform(1.0, 15.0)
        if code == E.NONE and with_offsets:
            code = yield from self._write(attempt, run.offsets, attempt.key)
        if code in FENCED:
            raise Dead(f"fenced: {code.name}")
        is_sure = code == E.NONE
        if rng.random() < 0.02:
            raise Dead("it vanishes with its transaction open")
        if is_begun:
            yield from self._end(attempt, is_sure and rng.random() < 0.75)
        if not is_sure and not self.adds:
            # What is on its way may still arrive: never again with this epoch.
            yield from self._init()

    def _add_partitions(self, places: set[TopicPartition]) -> Call:
        who = (self.name, self.producer_id, self.epoch)
        return self._ask(
            lambda office, answer: office.add(*who, places, 3, answer), E.NOT_COORDINATOR, may_be_late=False
        )

    def _add_offsets(self) -> Call:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id="g"
        )
        place = self.run.offsets
        return self._ask(
            lambda office, answer: office.add_offsets(request, place, answer), E.NOT_COORDINATOR, may_be_late=False
        )

    def _write(self, attempt: Attempt, place: TopicPartition, value: Any) -> Step:
        """One record, again with the same sequence until it is acknowledged."""
        is_offset = place == self.run.offsets
        sequence = -1 if is_offset else self._sequences.get(place, 0)
        request = Produce(self.name, self.producer_id, self.epoch, sequence, value, self.adds)
        partition = self.run.partitions[place]
        attempt.records.append((place, value))
        sent_at = self.world.seconds
        if self.fenced_at is not None and sent_at >= self.fenced_at:
            self.run.zombie_values.add((place, value))
        code = yield from self._patiently(
            lambda: Call(lambda answer: partition.produce(request, answer), self.adds or not is_offset)
        )
        if code == E.NONE:
            attempt.acknowledged.add((place, value))
            self._sequences[place] = sequence + 1
        return code

    def _end(self, attempt: Attempt, commit: bool) -> Generator[Call | float, Any, None]:
        version = 5 if self.adds else 4
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        if commit:
            attempt.asked_commit_at = self.world.seconds
        else:
            attempt.told = False
        is_zombie = self.fenced_at is not None
        for _ in range(2 * TRIES):
            response = yield self._ask(
                lambda office, answer: office.end(request, version, answer),
                EndTxnResponse(error_code=E.NOT_COORDINATOR),
                may_be_late=self.adds,
            )
            code = E.REQUEST_TIMED_OUT if response is None else error_of(response)
            if code == E.NONE:
                assert not is_zombie, f"{self} was fenced at {self.fenced_at}, and ended a transaction after that"
                attempt.told = commit
                if self.adds:
                    self._become(response.producer_id, response.producer_epoch)
                return
            if code not in TRY_AGAIN:
                raise Dead(f"EndTxn: {code.name}")
            yield 0.1
        raise Dead("EndTxn: gave up")
