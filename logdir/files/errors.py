"""What goes wrong with a log directory.

Two audiences: `StorageError` and `CorruptLog` are answered to clients with their Kafka error code, `LogDirError` and
its kinds stop the start-up and are for the person who started the broker.
"""

from __future__ import annotations

import errno
from typing import Final

from barnabas.kproto.errors import ErrorCode, KafkaError

OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ENAMETOOLONG})
"""Errors that say nothing about the disk."""


class StorageError(KafkaError, OSError):
    """A system call failed under an append, a read or a flush: KAFKA_STORAGE_ERROR, which clients retry.

    `errno` is that of the system call. After one from `append` or `write`, batches below `log_end_offset` are
    written, and nothing of the others is left: neither offsets nor producer state. Whether the log can be used any
    more is its `failure`'s to say.
    """

    def __init__(self, message: str, cause: OSError) -> None:
        said = cause.strerror or str(cause)
        if isinstance(cause.filename, str) and cause.filename not in message:
            said = f"{cause.filename}: {said}"
        KafkaError.__init__(self, ErrorCode.KAFKA_STORAGE_ERROR, f"{message}: {said}")
        self.errno = cause.errno

    @property
    def is_full(self) -> bool:
        """The disk (or a quota) is full."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def is_ours(self) -> bool:
        """The process is out of descriptors or memory, was interrupted, or a name is too long: the disk has nothing to
        do with it, and the next attempt may succeed.
        """
        return self.errno in OURS


class UnexpectedOffset(KafkaError):
    """A replicated batch starts below the log end offset. `first_offset`, `last_offset`: of what was to be appended."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogDirError(Exception):
    """The directory cannot be used as it is; the message says which file and what to do."""


class LogDirLocked(LogDirError):
    """Another broker has the directory open."""


class InconsistentMeta(LogDirError):
    """`meta.properties` belongs to another broker or cluster, or cannot be read."""


class CorruptFile(LogDirError):
    """A small file (checkpoint, snapshot, index, partition.metadata) does not have its format."""


def duplicate(key: tuple[str, int], one: str, other: str) -> LogDirError:
    """The same partition twice: only a person can decide which one is right."""
    return LogDirError(
        f"{key[0]}-{key[1]} is in both {one} and {other}, which happens when a log directory fails, or the machine, at "
        "the end of a move between two; remove one of them, the one on the disk that failed, or the one that ends "
        "earlier"
    )
