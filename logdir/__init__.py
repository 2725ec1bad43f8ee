"""Partition logs on disk, in Apache Kafka's own file formats. Plain synchronous file code: no tasks, no clock.

`LogDirs` keeps all log directories of a broker, `LogDir` all `PartitionLog`s of one. See ARCHITECTURE.md and the
modules; this is the whole face.
Beside it: `offline`, directories without a broker (its `open_log` and `open_log_dir` are here too).
"""

from typing import TYPE_CHECKING, Any

from barnabas.logdir.compaction.plan import (
    CleanedSegment,
    CompactionAborted,
    CompactionLimits,
    CompactionPlan,
    CompactionState,
    CompactionStats,
    dirtiest,
)
from barnabas.logdir.dirs.checkpoints import Checkpoint, Checkpoints
from barnabas.logdir.dirs.log_dir import LogDir
from barnabas.logdir.dirs.log_dirs import LogDirs, Promoted
from barnabas.logdir.files.cleaner_checkpoint import CleanerCheckpoint
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.errors import (
    OURS,
    CorruptFile,
    InconsistentMeta,
    LogDirError,
    LogDirLocked,
    StorageError,
    UnexpectedOffset,
)
from barnabas.logdir.files.layout import MetaProperties
from barnabas.logdir.files.open_files import FileSlice, LogFile, half_of_the_limit
from barnabas.logdir.files.removal import Removal
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.logs.appender import OwnRecords
from barnabas.logdir.logs.log import PartitionLog
from barnabas.logdir.segments.incoming import AppendInfo, AppendOrigin, prepare
from barnabas.logdir.segments.producers import InTransaction, OwnProducer, Verification
from barnabas.logdir.segments.timed_batch import LongBatch

if TYPE_CHECKING:
    from barnabas.logdir.offline import open_log, open_log_dir

__all__ = [
    "OURS",
    "AbortedTxn",
    "AppendInfo",
    "AppendOrigin",
    "Checkpoint",
    "Checkpoints",
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
    "OwnProducer",
    "OwnRecords",
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
        from barnabas.logdir import offline

        return getattr(offline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
