"""What administrators are shown of the transactional ids of one partition: DescribeTransactions, ListTransactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from barnabas.coordinator.machine import Now
from barnabas.coordinator.txn.states import DECIDED, State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DescribeTransactionsResponse, ListTransactionsResponse


class TransactionViews:
    """See the module."""

    def __init__(self, store: TxnStore) -> None:
        self._store = store

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        """DescribeTransactions, for one id. A decided transaction shows the partitions that still need a marker."""
        described = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
        entry = self._store.ids.get(transactional_id)
        txn = None if entry is None else entry.txn
        if self._store.is_gone:
            described.error_code = ErrorCode.NOT_COORDINATOR
        elif not transactional_id:
            described.error_code = ErrorCode.INVALID_REQUEST
        elif entry is None or txn is None:
            described.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            described.transaction_state = txn.state.value
            described.transaction_timeout_ms = txn.timeout_ms
            described.transaction_start_time_ms = txn.start_ms
            described.producer_id = txn.producer_id
            described.producer_epoch = txn.producer_epoch
            topics: dict[str, list[int]] = {}
            for topic, partition in sorted(entry.unmarked if txn.state in DECIDED else txn.partitions):
                topics.setdefault(topic, []).append(partition)
            described.topics = [
                DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ]
        return described

    def listed(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        matches: Callable[[str], bool] | None,
        now: Now,
    ) -> Iterator[ListTransactionsResponse.TransactionState]:
        """ListTransactions. Each filter narrows the list, an empty one does not: names of states, exactly as shown;
        producer ids; `duration_ms`, if not negative: started longer ago than that; `matches`: of the whole id.
        """
        found = self.looked_through(states, producer_ids, duration_ms, matches, now)
        return (state for state in found if state is not None)

    def looked_through(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        matches: Callable[[str], bool] | None,
        now: Now,
    ) -> Iterator[ListTransactionsResponse.TransactionState | None]:
        """As `listed`, with None for each id that is not: the caller may pause anywhere among very many, and gets those
        that there were at the beginning.
        """
        for entry in list(self._store.ids.values()):
            txn = entry.txn
            if (
                txn is not None
                and (not producer_ids or txn.producer_id in producer_ids)
                and (not states or txn.state.value in states)
                and (duration_ms < 0 or now.wall_ms - txn.start_ms > duration_ms)
                and (matches is None or matches(entry.transactional_id))
            ):
                yield ListTransactionsResponse.TransactionState(
                    transactional_id=entry.transactional_id,
                    producer_id=txn.producer_id,
                    transaction_state=txn.state.value,
                )
            else:
                yield None


def unknown_state_filters(states: Iterable[str]) -> list[str]:
    """The names in a ListTransactions filter that are no state; they are in the answer, and match nothing."""
    known: Mapping[str, State] = {state.value: state for state in State}
    return [name for name in states if name not in known]
