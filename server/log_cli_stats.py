"""`barnabas log stats`: what is in logs, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

from logdir.offline.stats import Stats
from server.log_cli_dump import time_text
from server.log_cli_progress import readable

_HEAD = ("partition", "segments", "size", "batches", "records", "offsets", "from", "to", "codecs", "batch", "producers")
_FULL_HEAD = ("record", "ratio", "keyed", "keys", "tombstones", "txn", "control")
_LEFT = frozenset({"partition", "offsets", "from", "to", "codecs"})


def table(found: Sequence[Stats], *, full: bool) -> list[str]:
    """Lines: a head, one for each of `found`."""
    head = _HEAD + (_FULL_HEAD if full else ())
    rows = [head, *(_row(stats, full) for stats in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _row(stats: Stats, full: bool) -> tuple[str, ...]:
    cells = (
        _name(stats),
        str(stats.segments),
        readable(stats.bytes),
        str(stats.batches),
        str(stats.records),
        "" if stats.start_offset is None else f"{stats.start_offset}..{stats.end_offset}",
        "-" if stats.oldest_ms is None else time_text(stats.oldest_ms),
        "-" if stats.newest_ms is None else time_text(stats.newest_ms),
        ",".join(f"{name}:{_percent(count, stats.batches)}" for name, count in stats.codecs.most_common()) or "-",
        readable((stats.bytes - stats.unread_bytes) / stats.batches) if stats.batches else "-",
        _number(stats.producers.count, stats.producers.is_exact),
    )
    if not full:
        return cells
    return (
        *cells,
        readable(stats.plain_bytes / stats.records) if stats.records else "-",
        "-" if stats.compression_ratio is None else f"{stats.compression_ratio:.2f}",
        _percent(stats.keyed_records, stats.data_records),
        _number(stats.keys.count, stats.keys.is_exact),
        _percent(stats.tombstones, stats.data_records),
        _percent(stats.transactional_records, stats.data_records),
        _percent(stats.control_records, stats.records),
    )


def _name(stats: Stats) -> str:
    if stats.topic is None:
        return "all" if stats.partitions != 1 else "?"
    return stats.topic if stats.partition is None else f"{stats.topic}-{stats.partition}"


def _percent(part: int, whole: int) -> str:
    if not part:
        return "0" if whole else "-"
    share = part / whole
    # Neither nothing nor all may look like it.
    return "<1%" if share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def _number(count: int, exact: bool) -> str:
    return str(count) if exact else f"~{count}"


def totals(found: Sequence[Stats], *, full: bool) -> list[Stats]:
    """One line for each topic of several partitions, and one for all if there are several topics."""
    by_topic: dict[str | None, list[Stats]] = {}
    for stats in found:
        by_topic.setdefault(stats.topic, []).append(stats)
    lines = [_sum(topic, group, full) for topic, group in by_topic.items() if len(group) > 1]
    if len(by_topic) > 1:
        lines.append(_sum(None, found, full))
    return lines


def _sum(topic: str | None, group: Sequence[Stats], full: bool) -> Stats:
    total = Stats(topic, None, full, partitions=0)
    for stats in group:
        total.add(stats)
    return total
