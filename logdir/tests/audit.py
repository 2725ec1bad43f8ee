"""Whether everything that a log keeps beside its batches agrees with them: the tests' own reading of the files.

Nothing here is shared with recovery: batches are walked with kproto, and what indexes, transaction indexes, snapshots,
producer state and leader epochs must hold is worked out anew.
"""

from __future__ import annotations

import bisect

from barnabas.kproto.records import BatchHeader, iter_headers, iter_records, parse_control_record
from barnabas.kproto.records_legacy import iter_messages
from barnabas.logdir import PartitionLog
from barnabas.logdir.files.layout import SNAPSHOT, TXN_INDEX, file_name
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.files.txn_index import decode
from barnabas.logdir.segments.producers import Producers


class State:
    """Producers by the rules of KIP-98, without anybody being refused."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[int, int]] = {}  # producer id to (epoch, last sequence)
        self.open: dict[int, int] = {}  # producer id to first offset

    def take(self, header: BatchHeader, data: bytes) -> tuple[int, int, int, int] | None:
        """The entry for the transaction index, if the batch aborts a transaction."""
        who = header.producer_id
        if who < 0:
            return None
        if not header.is_control:
            if header.record_count or header.base_sequence >= 0:
                self.last[who] = header.producer_epoch, header.last_sequence
            if header.is_transactional:
                self.open.setdefault(who, header.base_offset)
            return None
        for record in iter_records(data):
            kind, _ = parse_control_record(record)
            known = self.last.get(who)
            self.last[who] = header.producer_epoch, known[1] if known and known[0] == header.producer_epoch else -1
            start = self.open.pop(who, None)
            if start is not None and kind == 0:
                return who, start, header.base_offset, min(self.open.values(), default=header.base_offset + 1)
        return None


def entries(data: bytes) -> list[tuple[int, int, int, int, BatchHeader | None, bytes]]:
    """(position, base offset, last offset, largest timestamp, header, bytes) of everything in a `.log` file, formats 0
    and 1 among it; every byte must belong to something.
    """
    found: list[tuple[int, int, int, int, BatchHeader | None, bytes]] = []
    position = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        piece = data[position : position + size]
        assert len(piece) == size, f"the file ends inside a batch at {position}"
        if piece[16] < 2:
            (message,) = iter_messages(piece)
            found.append((position, message.offset, message.offset, message.timestamp, None, piece))
        else:
            ((_, header),) = iter_headers(piece)
            found.append((position, header.base_offset, header.last_offset, header.max_timestamp, header, piece))
        position += size
    return found


def audit(log: PartitionLog, disk: MemoryDisk, *, expired: bool = False) -> None:
    """Assert it all. `expired`: producers may have been forgotten. The log is written, not necessarily flushed."""
    whole = log.first_base_offset == 0 and not expired
    if not log.is_made:
        assert (log.size, log.segment_count, log.log_end_offset) == (0, 1, log.first_base_offset)
        return
    state = State()
    snapshots: dict[int, Producers] = {}
    for entry in disk.list(log.directory):
        if entry.name.endswith(SNAPSHOT):
            loaded = Producers()
            loaded.load(bytes(disk.node(f"{log.directory}/{entry.name}").data), entry.name)
            snapshots[int(entry.name[:20])] = loaded
    end = log.first_base_offset
    first_base = log.first_base_offset
    epochs: list[tuple[int, int]] = []
    for segment in log.state.segments:
        assert segment.base_offset >= end, segment
        data = bytes(disk.node(segment.path()).data)
        assert len(data) == segment.size, segment
        starts: dict[int, int] = {}
        peaks: set[tuple[int, int]] = set()
        newest = (-1, segment.base_offset)
        aborted: list[tuple[int, int, int, int]] = []
        for position, base, last, timestamp, header, piece in entries(data):
            assert end <= base <= last, (segment, base)
            for offset in [each for each in snapshots if end <= each <= base]:
                _compare(snapshots.pop(offset), state, first_base, whole)
            starts[position] = last
            if timestamp > newest[0]:
                newest = timestamp, last
            peaks.add(newest)
            end = last + 1
            if header is not None:
                entry_ = state.take(header, piece)
                if entry_ is not None:
                    aborted.append(entry_)
                if header.partition_leader_epoch >= 0:
                    epochs.append((header.partition_leader_epoch, base))
        offsets, times = segment.indexes()
        for slot in offsets._entries:
            assert starts.get(slot & 0xFFFFFFFF) == segment.base_offset + (slot >> 32), (segment, slot)
        for number in range(len(times)):
            timestamp, relative = times._entry(number)
            assert (timestamp, segment.base_offset + relative) in peaks, (segment, timestamp)
        assert (segment.max_timestamp, segment.max_timestamp_offset if newest[0] >= 0 else newest[1]) == newest, segment
        indexed = [tuple(each) for each in segment.aborted()]
        try:
            node = disk.node(segment.path(TXN_INDEX))
        except FileNotFoundError:
            assert not indexed, segment
        else:
            assert [tuple(each) for each in decode(bytes(node.data), segment.base_offset)] == indexed, segment
        if whole:
            assert indexed == aborted, segment
        else:  # where transactions began may be gone
            older = {(who, marker) for who, first, marker, _ in indexed if first < first_base}
            expected = [marker for who, _, marker, _ in aborted if (who, marker) not in older]
            assert [marker for _, first, marker, _ in indexed if first >= first_base] == expected, segment
    for offset, loaded in snapshots.items():
        assert offset <= log.log_end_offset, file_name(offset, SNAPSHOT)
        if offset >= end:
            _compare(loaded, state, first_base, whole)
    _compare(log.producers, state, first_base, whole)
    assert end <= log.log_end_offset
    assert log.log_start_offset <= log.log_end_offset
    assert log.first_base_offset <= log.log_start_offset
    first_known = log.epochs.entries[0][1] if log.epochs.entries else log.log_end_offset
    for epoch, base in epochs:
        # Deleted records may come back with a crash; the epochs below the log's start need not.
        if base >= max(log.log_start_offset, first_known):
            assert log.epochs.epoch_for(base) == epoch, (epoch, base, log.epochs.entries)
    known = [start for _, start in log.epochs.entries]
    assert known == sorted(set(known))
    assert bisect.bisect_right(known, log.log_end_offset) == len(known)


def _compare(known: Producers, state: State, first_base: int, whole: bool) -> None:
    found = {who: (entry.epoch, entry.last_sequence) for who, entry in known.entries.items()}
    if whole:
        assert found == state.last
        assert {who: start for start, who in known.open_txns.items()} == state.open
        return
    for who, last in state.last.items():
        assert found.get(who, last) == last or last[1] == -1, (who, found[who], last)
    opened = {who: start for start, who in known.open_txns.items()}
    for who, start in state.open.items():
        assert who not in found or opened.get(who, first_base) <= start, (who, opened, start)
