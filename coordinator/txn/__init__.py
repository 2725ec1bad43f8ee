"""The transaction coordinator: `shard` decides, `markers` delivers what it decided to partition leaders.

This is the face; it is not part of the package's, so that a broker nobody uses transactions on need not load it.
"""

from coordinator.txn.answers import verification_error
from coordinator.txn.config import TxnConfig
from coordinator.txn.ids import NeedProducerId
from coordinator.txn.markers import Leader, Marked, MarkerQueues, MarkersToWrite, ToSend
from coordinator.txn.shard import TxnShard, unknown_state_filters

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
