"""What is in a field of records, and what is wrong with it.

Batches of format v2 are checked as a broker does: lengths, CRC-32C, and up to `DEEP_BYTES` of each field the records
inside, decompressed. Messages of formats v0 and v1 have their CRC checked. A batch that is cut off at the end of an
answer to Fetch is no fault: brokers send as many bytes as were asked for.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.kproto import Buffer, KafkaError
from barnabas.kproto.compression import CODEC_NAMES
from barnabas.kproto.records import CorruptRecords, check_batch, iter_records, magic_of, read_header
from barnabas.kproto.records_legacy import iter_messages

DEEP_BYTES: Final = 1024 * 1024
PLAIN_BYTES_MAX: Final = 16 * 1024 * 1024
BATCHES_SHOWN: Final = 5
FAULTS_MAX: Final = 5


def looked_at(data: Buffer, *, may_be_cut: bool) -> tuple[dict[str, Any], list[str]]:
    """A summary of records, and what is wrong with them. may_be_cut: they are an answer to Fetch."""
    summary: dict[str, Any] = {"bytes": len(data)}
    faults: list[str] = []
    if not len(data):
        return summary, faults
    try:
        if len(data) > 16 and magic_of(data) < 2:
            _legacy(data, summary, may_be_cut, faults)
        else:
            _batches(data, summary, may_be_cut, faults)
    except CorruptRecords as error:
        faults.append(str(error))
    return summary, faults[:FAULTS_MAX]


def _batches(data: Buffer, summary: dict[str, Any], may_be_cut: bool, faults: list[str]) -> None:
    position = records = count = 0
    shown: list[dict[str, Any]] = []
    while position < len(data):
        left = len(data) - position
        size = 61 if left < 61 else read_header(data, position).size
        if size > left:
            if not may_be_cut:
                faults.append(f"the batch at byte {position} is cut off")
            summary["cut_off_bytes"] = left
            break
        try:
            header = check_batch(data, position)
            if position < DEEP_BYTES and not header.is_control:
                for _ in iter_records(data, position, max_bytes=PLAIN_BYTES_MAX):
                    pass
        except (CorruptRecords, KafkaError) as error:
            faults.append(f"the batch at byte {position}: {error}")
            header = read_header(data, position)
        if len(shown) < BATCHES_SHOWN:
            shown.append(_shown(header))
        records += max(0, header.record_count)
        count += 1
        position += header.size
    summary.update(records=records, batches=shown)
    if count > len(shown):
        summary["more_batches"] = count - len(shown)


def _shown(header: Any) -> dict[str, Any]:
    shown = {"base_offset": header.base_offset, "records": header.record_count, "bytes": header.size}
    if header.codec:
        shown["compression"] = _codec(header.codec)
    if header.producer_id >= 0:
        shown["producer_id"] = header.producer_id
        shown["producer_epoch"] = header.producer_epoch
        shown["base_sequence"] = header.base_sequence
    for name in ("transactional", "control"):
        if getattr(header, f"is_{name}"):
            shown[name] = True
    return shown


def _codec(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec {number}"


def _legacy(data: Buffer, summary: dict[str, Any], may_be_cut: bool, faults: list[str]) -> None:
    count = end = 0
    first: int | None = None
    codecs = set()
    try:
        for message in iter_messages(data):
            first = message.offset if first is None else first
            count += 1
            end += message.size
            codecs.add(message.codec)
    finally:
        summary.update(format=magic_of(data), messages=count, first_offset=first)
        if codecs - {0}:
            summary["compression"] = sorted(map(_codec, codecs - {0}))
    if end != len(data):
        summary["cut_off_bytes"] = len(data) - end
        if not may_be_cut:
            faults.append(f"the message at byte {end} is cut off")
