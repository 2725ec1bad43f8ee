"""Leader epochs and where they start (KIP-101): which epoch wrote which stretch of the log.

Rising epochs with rising start offsets; an epoch ends where the next one starts. Followers compare it with the
leader's to find where their logs part.

`leader-epoch-checkpoint` holds the entries (checkpoint.py). It is written, synced, by a flush, before the recovery
point moves: what a crash loses of it stands in the headers of the batches above the recovery point, and recovery
reads it from there. Apache Kafka syncs the file on every change, which is most of what creating thousands of
partitions costs there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from barnabas.logdir.files.checkpoint import LEADER_EPOCH, decode_lines, encode_lines
from barnabas.logdir.files.disk import Disk, read_file
from barnabas.logdir.files.errors import CorruptFile

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """The entries of one partition: (epoch, start offset), rising, replaced as a whole, so that a thread may save
    them. `changed`: the file is behind.
    """

    __slots__ = ("changed", "entries")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: tuple[tuple[int, int], ...] = ()
        for epoch, start in entries:
            self.assign(epoch, start)
        self.changed = False

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs:
        """From the partition's directory; no file gives no entries. Raises `CorruptFile`, OSError."""
        try:
            data = read_file(disk, f"{directory}/{LEADER_EPOCH}")
        except FileNotFoundError:
            return cls()
        try:
            return cls([(int(epoch), int(start)) for epoch, start in decode_lines(data, LEADER_EPOCH)])
        except ValueError:
            raise CorruptFile(f"{directory}/{LEADER_EPOCH} has an entry that is not an epoch and an offset") from None

    def encode(self) -> bytes:
        return encode_lines(f"{epoch} {start}" for epoch, start in self.entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1][0] if self.entries else NO_EPOCH

    @property
    def latest_start(self) -> int:
        """Where the newest epoch starts, -1 if there is none."""
        return self.entries[-1][1] if self.entries else NO_OFFSET

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`. Entries that contradict it, later ones or ones of higher epochs, are
        dropped.
        """
        entries = self.entries
        keep = len(entries)
        while keep and (entries[keep - 1][0] >= epoch or entries[keep - 1][1] >= start_offset):
            if entries[keep - 1][0] == epoch and entries[keep - 1][1] <= start_offset:
                # It continues. Apache Kafka would let it begin again if a higher epoch without records came between.
                self._replace(entries[:keep])
                return
            keep -= 1
        self._replace((*entries[:keep], (epoch, start_offset)))

    def _replace(self, entries: tuple[tuple[int, int], ...]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, where it ends), (-1, -1) if unknown; what OffsetForLeaderEpoch answers.

        Below the first known epoch: (`epoch`, start of the first one), as what was there before is deleted.
        """
        entries = self.entries
        if epoch == NO_EPOCH or not entries or epoch > entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=_epoch)
        return (entries[higher - 1][0] if higher else epoch), entries[higher][1]

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if it is before the first known one."""
        number = bisect_right(self.entries, offset, key=_start) - 1
        return self.entries[number][0] if number >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that start there or later have no records."""
        entries = self.entries
        keep = len(entries)
        while keep and entries[keep - 1][1] >= end_offset:
            keep -= 1
        self._replace(entries[:keep])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: earlier epochs go, and the one that holds that offset starts there."""
        entries = self.entries
        below = bisect_right(entries, start_offset, key=_start)
        if below:
            self._replace(((entries[below - 1][0], start_offset), *entries[below:]))

    def clear(self) -> None:
        self._replace(())


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
