"""The transaction coordinator: `shard` decides, `markers` delivers what it decided to partition leaders.

This is the face; it is not part of the package's, so that a broker without transactional clients need not load it.

What the runtime does, besides what `barnabas.coordinator.machine` says:

- one `TxnShard` per partition of `__transaction_state` for as long as this broker leads it, with the leader epoch in
  which that began; one `MarkerQueues` for all of them;
- after a load, and only when everything in the log is committed, `loaded`; then `expire` whenever `deadline` has come;
  `remove_expired` now and then; `unload`, and `MarkerQueues.remove`, when the partition goes;
- `NeedProducerId`: fetch an id, call `given` or `refused`, carry on with the result;
- `MarkersToWrite`: `MarkerQueues.add`, then `requests`; send each to its broker (to itself by a direct call), hand what
  comes back to `answered`, ask `requests` again; every `Marked` of both goes to `TxnShard.marked` of its source;
- `Leader.GONE` only on good authority, for a partition that is gone is skipped;
- without a shard for the id: NOT_COORDINATOR; while it is being read: COORDINATOR_LOAD_IN_PROGRESS.
"""

from barnabas.coordinator.txn.answers import verification_error
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.markers import Leader, Marked, MarkerQueues, MarkersToWrite, ToSend
from barnabas.coordinator.txn.needs import NeedProducerId
from barnabas.coordinator.txn.shard import TxnShard
from barnabas.coordinator.txn.views import unknown_state_filters

__all__ = [
    "Leader",
    "Marked",
    "MarkerQueues",
    "MarkersToWrite",
    "NeedProducerId",
    "ToSend",
    "TxnConfig",
    "TxnShard",
    "unknown_state_filters",
    "verification_error",
]
