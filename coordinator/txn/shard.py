"""All transactional ids of one partition of `__transaction_state`: what the runtime holds per partition it leads.

Life: `replay` every record from the log start to its end, then `loaded(now)`; operations from then on; `unload()` when
the partition is led elsewhere, after which the answer is NOT_COORDINATOR. Leading it again takes a new
shard. What must be refused before (loading, not the coordinator) is the runtime's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `barnabas.coordinator.machine`. A change of an id is one record, and until it is committed
the id is *busy*: another change is answered CONCURRENT_TRANSACTIONS, and readers see the state before. So
a partition is confirmed to its leader only when the record that holds it cannot be lost, and markers are written only
when the decision cannot be lost. Until all markers are written the id stays busy.

Effects: `NeedProducerId` and `MarkersToWrite`.

Differences from Apache Kafka: a change that is in the log but takes too long to be committed stays pending until it is
(there it is forgotten in memory, though the log may bring it back); each transaction has a deadline of its own instead
of a scan every 10 s; an owner whose epoch is exhausted and who repeats its request is answered, or fenced (there the
request fails with an exception). Sources: `TransactionCoordinator`, `TransactionStateManager` of Apache Kafka 4.3.

`TxnShard` is the face of parts that share one `TxnStore`, and write through `Changes`:

    store.py         the ids, and how records become ids
    changes.py       writing a change of an id, and what follows from it
    producers.py     InitProducerId
    partitions.py    AddPartitionsToTxn, AddOffsetsToTxn
    ends.py          EndTxn
    time_outs.py     aborts by the coordinator
    removal.py       removal of expired ids
    views.py         descriptions for administrators
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.coordinator.machine import FAILED_AGAIN_S, NOTHING, Decision, Now, Result, StepFailed
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.ends import Ends
from barnabas.coordinator.txn.ids import Due
from barnabas.coordinator.txn.markers import Marked
from barnabas.coordinator.txn.partitions import PartitionsOfTransactions
from barnabas.coordinator.txn.producers import Producers
from barnabas.coordinator.txn.removal import Removal
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.time_outs import TimeOuts
from barnabas.coordinator.txn.transaction import NO_ID
from barnabas.coordinator.txn.views import TransactionViews

log = logging.getLogger("barnabas.transactions")


class TxnShard:
    """See the module. coordinator_epoch: the leader epoch in which the broker began to lead the partition.

    ids: by name. store, partitions, ends: what is asked for each transaction is best asked of these. The parts' methods
    are the shard's, too: of the `TxnStore` `replay`; of `Producers` `init_producer_id`; of `PartitionsOfTransactions`
    `add_partitions`, `add_offsets`, `verify_partitions`; of `Ends` `end`; of `TransactionViews` `describe`, `listed`,
    `looked_through`.
    """

    def __init__(self, config: TxnConfig, coordinator_epoch: int) -> None:
        store = self.store = TxnStore(config, coordinator_epoch)
        changes = self._changes = Changes(store)
        self._time_outs = TimeOuts(store, changes)
        self._removal = Removal(store, changes)
        self.ids = store.ids
        self.replay = store.replay
        self.init_producer_id = Producers(store, changes).init_producer_id
        partitions = self.partitions = PartitionsOfTransactions(store, changes)
        self.add_partitions = partitions.add_partitions
        self.add_offsets = partitions.add_offsets
        self.verify_partitions = partitions.verify_partitions
        self.ends = Ends(store, changes)
        self.end = self.ends.end
        views = TransactionViews(store)
        self.describe = views.describe
        self.listed = views.listed
        self.looked_through = views.looked_through

    def set_config(self, config: TxnConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.store.config = config

    # -- life -------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Result:
        """The log was read to its end, and all of it is committed. Markers of decided transactions go out again."""
        out = Decision()
        for entry in self.ids.values():
            try:
                entry.settle()
                self._changes.follow_up(entry, now, out)
            except Exception:  # the others' markers must go out
                log.exception("transactional id %r cannot be brought back", entry.transactional_id)
        self.store.is_loaded = True
        return out.result()

    def unload(self) -> None:
        """The partition is led elsewhere. Replies that are held are the runtime's to refuse, by `Result.failed`."""
        self.store.unload()

    def marked(self, marked: Marked, now: Now) -> Result:
        """Partitions need no marker any more, see `barnabas.coordinator.txn.markers`."""
        return self._changes.marked(marked, now)

    def remove_expired(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up, see `Removal.remove_expired`."""
        return self._removal.remove_expired(now)

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self.store.deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. Raises StepFailed for one id."""
        due = self.store.deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        transactional_id, what = due
        out = Decision()
        entry = self.ids.get(transactional_id)
        if entry is not None:
            try:
                if what is Due.COMPLETE:
                    self._changes.maybe_complete(entry, now, out)
                else:
                    self._time_outs.time_out(entry, NO_ID, now, out)
            except Exception as error:
                self.store.deadlines.set(due, now.seconds + FAILED_AGAIN_S)
                raise StepFailed(due, Result(replies=out.replies)) from error
        return out.result()
