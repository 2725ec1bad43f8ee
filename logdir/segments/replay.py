"""Producer state out of stored batches: what a snapshot does not know yet is read from the log.

Nothing is checked for sequence here: what stands in the log was accepted once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.kproto.records import BatchHeader, iter_records, parse_control_record
from barnabas.logdir.files import layout
from barnabas.logdir.files.disk import Disk, read_file, remove_if_there
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.segments.producers import InTransaction, Producers
from barnabas.logdir.segments.segment import Segment

log = logging.getLogger("barnabas.logdir")


def note_batch(
    producers: Producers,
    data: memoryview | bytes,
    header: BatchHeader,
    base_offset: int,
    replicated: bool,
    in_txn: InTransaction | None = None,
) -> AbortedTxn | None:
    """Take a stored or incoming batch into the producer state. `data`: the batch, used for control batches only.
    Raises KafkaError.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            base_offset,
            header.max_timestamp,
            header.is_transactional,
            from_client=False,
            replicated=replicated,
            in_txn=in_txn,
        )
        return None
    for record in iter_records(data):
        kind, coordinator_epoch = parse_control_record(record)
        if coordinator_epoch is not None:
            return producers.end_transaction(
                header.producer_id,
                header.producer_epoch,
                coordinator_epoch,
                kind == 1,
                base_offset,
                record.timestamp,
                transaction_version=0 if in_txn is None else in_txn.transaction_version,
                replicated=replicated,
            )
    return None


def rebuild_producers(
    disk: Disk, directory: str, segments: Sequence[Segment], snapshots: list[int], producers: Producers, end_offset: int
) -> None:
    """Make `producers` what it was at `end_offset`. Raises OSError, `CorruptRecords`."""
    first = segments[0].base_offset
    replay(segments, producers, load_snapshot(disk, directory, snapshots, producers, first, end_offset), end_offset)


def load_snapshot(
    disk: Disk, directory: str, snapshots: list[int], producers: Producers, first_offset: int, end_offset: int
) -> int:
    """Load the newest good snapshot in [first_offset, end_offset]; its offset, 0 with empty state if there is none. Bad
    ones are removed. Raises OSError.

    first_offset: of the first segment. From an earlier snapshot on there are batches missing, among them perhaps the
    end of a transaction, which would then stay open forever.
    """
    producers.clear()
    for offset in sorted(snapshots, reverse=True):
        if not first_offset <= offset <= end_offset:
            continue
        path = f"{directory}/{layout.file_name(offset, layout.SNAPSHOT)}"
        try:
            producers.load(read_file(disk, path), path)
        except (CorruptFile, FileNotFoundError):
            snapshots.remove(offset)
            remove_if_there(disk, path)
        else:
            return offset
    return 0


def replay(segments: Sequence[Segment], producers: Producers, start_offset: int, end_offset: int) -> None:
    """Take the batches in [start_offset, end_offset) into the state. Raises OSError, `CorruptRecords`."""
    for number, segment in enumerate(segments):
        segment_end = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if segment_end <= start_offset or segment.base_offset >= end_offset:
            continue
        found = segment.find(start_offset)
        if found is None:
            continue
        for batch in segment.batches(found[0]):
            if batch.base_offset >= end_offset:
                break
            header = batch.header
            if header is not None and header.producer_id >= 0:
                data = segment.read(batch.position, batch.size) if header.is_control else b""
                note_batch(producers, data, header, batch.base_offset, True)
                producers.commit(end_offset)


def aborted_of(
    disk: Disk, directory: str, segments: Sequence[Segment], snapshots: list[int], segment: Segment
) -> list[AbortedTxn]:
    """The transaction index of one of `segments`; one that is not right is rebuilt from the log. Raises OSError,
    `CorruptRecords`.
    """
    try:
        return segment.aborted()
    except CorruptFile as error:
        log.warning("%s: rebuilt from the log", error)
    producers = Producers()
    base = segment.base_offset
    first = segments[0].base_offset
    replay(segments, producers, load_snapshot(disk, directory, snapshots, producers, first, base), base)
    entries = []
    for batch in segment.batches():
        header = batch.header
        if header is not None and header.producer_id >= 0:
            data = segment.read(batch.position, batch.size) if header.is_control else b""
            entry = note_batch(producers, data, header, batch.base_offset, True)
            producers.commit(batch.last_offset + 1)
            if entry is not None:
                entries.append(entry)
    segment.set_aborted(entries, save=True)
    return entries
