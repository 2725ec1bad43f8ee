"""A whole log directory without a broker: its partitions, whose it is, and the checkpoint files beside them."""

from __future__ import annotations

import os
from typing import Final

from barnabas.logdir.files import layout
from barnabas.logdir.files.checkpoint import (
    CLEANER,
    HIGH_WATERMARK,
    LEADER_EPOCH,
    LOG_START,
    RECOVERY_POINT,
    read_offsets,
)
from barnabas.logdir.files.disk import Entry, ReadOnlyDisk, read_file
from barnabas.logdir.offline.errors import NotALog
from barnabas.logdir.offline.log import LogReader

CHECKPOINTS: Final = (RECOVERY_POINT, HIGH_WATERMARK, LOG_START, CLEANER)
PARTITION_FILES: Final = frozenset({LEADER_EPOCH, layout.PARTITION_METADATA})
"""Beside the segments of a partition."""


class LogDirReader:
    """`partitions`: in service, by topic and number; those given up or set aside (`-delete`, `-stray`, `-future`) are
    left out.
    """

    __slots__ = ("_disk", "partitions", "path")

    def __init__(self, path: str) -> None:
        """Raises `NotALog`, OSError."""
        self._disk: Final = ReadOnlyDisk()
        self.path: Final = os.path.abspath(path)
        found = []
        try:
            entries = self._disk.list(self.path)
        except NotADirectoryError:
            raise NotALog(f"{path} is a file, not a log directory") from None
        for entry in entries:
            named = layout.parse_partition_dir(entry.name) if entry.is_dir else None
            if named is not None and not named.mark:
                found.append((named.topic, named.partition, entry.name))
        logs = []
        for _, _, name in sorted(found):
            try:
                logs.append(LogReader(f"{self.path}/{name}"))
            except (NotALog, FileNotFoundError):
                continue
        if not logs and not any(entry.name == layout.META_PROPERTIES for entry in entries):
            raise NotALog(f"{path} holds neither {layout.META_PROPERTIES} nor a partition's directory")
        self.partitions: tuple[LogReader, ...] = tuple(logs)

    def __repr__(self) -> str:
        return f"LogDirReader({self.path!r})"

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(log.size for log in self.partitions)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({log.topic for log in self.partitions if log.topic is not None}))

    def partition(self, topic: str, partition: int) -> LogReader:
        """Raises KeyError."""
        for log in self.partitions:
            if log.topic == topic and log.partition == partition:
                return log
        raise KeyError((topic, partition))

    @property
    def meta(self) -> layout.MetaProperties | None:
        """None without a `meta.properties`. Raises `InconsistentMeta`, OSError."""
        path = f"{self.path}/{layout.META_PROPERTIES}"
        try:
            return layout.MetaProperties.decode(read_file(self._disk, path), path)
        except FileNotFoundError:
            return None

    @property
    def checkpoints(self) -> dict[str, dict[tuple[str, int], int]]:
        """By file name, (topic, partition) to offset; empty where there is no such file. Raises `CorruptFile`,
        OSError.
        """
        return {name: read_offsets(self._disk, self.path, name) for name in CHECKPOINTS}


def is_log_dir(path: str) -> bool:
    """Whether it is a broker's log directory, or a copy of one, not a partition's directory or a file. Raises
    OSError.
    """
    try:
        return are_of_log_dir(ReadOnlyDisk().list(path))
    except NotADirectoryError:
        return False


def are_of_log_dir(entries: list[Entry]) -> bool:
    """The same by the names that are there."""
    if any(entry.name == layout.META_PROPERTIES for entry in entries):
        return True
    if any(layout.parse_file_name(entry.name) or entry.name in PARTITION_FILES for entry in entries):
        return False
    return any(entry.is_dir and layout.parse_partition_dir(entry.name) for entry in entries)
