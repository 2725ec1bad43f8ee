"""Asks transaction coordinators, on behalf of partitions: is this partition part of that producer's open transaction?
Or else: make it part of it (KIP-890).

A batch that opens a transaction in a partition is accepted only if the coordinator knows the partition, so that it will
write an end marker there. Clients of transaction.version 2 do not add partitions themselves; the leader does it for
them.

    Produce, TxnOffsetCommit → `check` → this broker's coordinator (`verification_own`), or another's
                                         (`verification_others`)
                             ← errors by partition, none for those that are confirmed

Questions for the same id are merged (`verification_asks`). Source: `AddPartitionsToTxnManager` and
`ReplicaManager.handleProduceAppend` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.kproto import ErrorCode
from barnabas.replication import Image
from barnabas.server.coordinators.verification_asks import Ask, Done, Errors, Operation, TopicPartition
from barnabas.server.coordinators.verification_others import OtherCoordinators
from barnabas.server.coordinators.verification_own import Coordinator, OwnCoordinator
from barnabas.server.network.peers import Connect

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.runtime.timers import Timers


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
        self._config = current_config
        self._now = now
        self._own_id = current_config().broker_id
        self._own = OwnCoordinator(coordinator)
        self._others = OtherCoordinators(
            coordinator, partitions, connect, current_config=current_config, current_image=current_image
        )
        self.run = self._others.run

    @property
    def is_enabled(self) -> bool:
        return self._config().get_bool("transaction.partition.verification.enable")

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

        The errors are a producer's: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE. Without a verdict of the coordinator: NETWORK_EXCEPTION,
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        ask = Ask(transactional_id, producer_id, producer_epoch, operation)
        ask.add(partitions, done)
        self._submit(ask)

    def tries_again(self, operation: Operation, errors: Errors, since: float, again: Callable[[], None]) -> bool:
        """Whether to look once more, with `again`, which is called a little later; followed by the round's write.

        The next transaction of a client of version 2 may begin while the markers of the last one are being sent
        (CONCURRENT_TRANSACTIONS); that is usual and soon over. What was verified before that marker is worth nothing
        after it, so `again` starts from the beginning. since: when the request came, in seconds.
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

    def _submit(self, ask: Ask) -> None:
        place = self._coordinator.place(ask.transactional_id)
        if place is None or (place.leader != self._own_id and self._others.endpoint(place.leader) is None):
            ask.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif place.leader == self._own_id:
            self._own.ask(ask)
        else:
            self._others.ask(place.leader, ask)
