"""Partition logs on disk, in Apache Kafka's own file formats. Plain synchronous file code: no tasks, no clock.

`LogDirs` keeps all log directories of a broker, `LogDir` all `PartitionLog`s of one. See ARCHITECTURE.md and the
modules; this is the whole face.
Beside it: `offline`, directories without a broker (its `open_log` and `open_log_dir` are here too).
"""

from typing import TYPE_CHECKING, Any

from logdir.cleaner_checkpoint import CleanerCheckpoint
from logdir.compaction import (
    CleanedSegment,
    CompactionAborted,
    CompactionLimits,
    CompactionPlan,
    CompactionState,
    CompactionStats,
    dirtiest,
)
from logdir.config import LogConfig
from logdir.dirs import LogDirs, Promoted
from logdir.disk import Disk
from logdir.errors import (
    OURS,
    CorruptFile,
    InconsistentMeta,
    LogDirError,
    LogDirLocked,
    StorageError,
    UnexpectedOffset,
)
from logdir.files import FileSlice, LogFile, half_of_the_limit
from logdir.incoming import AppendInfo, AppendOrigin, prepare
from logdir.layout import MetaProperties
from logdir.log import PartitionLog
from logdir.manager import Checkpoint, LogDir
from logdir.producers import InTransaction, Verification
from logdir.removal import Removal
from logdir.timed_batch import LongBatch
from logdir.txn_index import AbortedTxn

if TYPE_CHECKING:
    from logdir.offline import open_log, open_log_dir

__all__ = [
    "OURS",
    "AbortedTxn",
    "AppendInfo",
    "AppendOrigin",
    "Checkpoint",
    "CleanedSegment",
    "CleanerCheckpoint",
    "CompactionAborted",
    "CompactionLimits",
    "CompactionPlan",
    "CompactionState",
    "CompactionStats",
    "CorruptFile",
    "Disk",
    "FileSlice",
    "InTransaction",
    "InconsistentMeta",
    "LogConfig",
    "LogDir",
    "LogDirError",
    "LogDirLocked",
    "LogDirs",
    "LogFile",
    "LongBatch",
    "MetaProperties",
    "PartitionLog",
    "Promoted",
    "Removal",
    "StorageError",
    "UnexpectedOffset",
    "Verification",
    "dirtiest",
    "half_of_the_limit",
    "open_log",
    "open_log_dir",
    "prepare",
]


def __getattr__(name: str) -> Any:
    # Late: a broker does not need them.
    if name in ("open_log", "open_log_dir"):
        from logdir import offline

        return getattr(offline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
