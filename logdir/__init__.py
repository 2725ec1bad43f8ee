"""Partition logs on disk, in Apache Kafka's own file formats. Plain synchronous file code: no tasks, no clock.

`LogDir` keeps all `PartitionLog`s of one directory. See ARCHITECTURE.md and the modules; this is the whole face.
"""

from logdir.config import LogConfig
from logdir.disk import Disk
from logdir.errors import (
    CorruptFile,
    InconsistentMeta,
    LogDirError,
    LogDirLocked,
    StorageError,
    UnexpectedOffset,
)
from logdir.files import FileSlice, LogFile
from logdir.incoming import AppendInfo, AppendOrigin
from logdir.layout import MetaProperties
from logdir.log import PartitionLog
from logdir.manager import Checkpoint, LogDir, Removal
from logdir.txn_index import AbortedTxn

__all__ = [
    "AbortedTxn",
    "AppendInfo",
    "AppendOrigin",
    "Checkpoint",
    "CorruptFile",
    "Disk",
    "FileSlice",
    "InconsistentMeta",
    "LogConfig",
    "LogDir",
    "LogDirError",
    "LogDirLocked",
    "LogFile",
    "MetaProperties",
    "PartitionLog",
    "Removal",
    "StorageError",
    "UnexpectedOffset",
]
