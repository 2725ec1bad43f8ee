"""`barnabas log stats`: what is in logs, as a table or as JSON lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from barnabas.logdir.offline.stats import Stats
from barnabas.server.cli.log_dump import time_text
from barnabas.server.cli.progress import readable

_HEAD = ("partition", "segments", "size", "batches", "records", "offsets", "from", "to", "codecs", "batch", "producers")
_FULL_HEAD = ("record", "ratio", "keyed", "keys", "tombstones", "txn", "control")
_LEFT = frozenset({"partition", "offsets", "from", "to", "codecs"})
_DISPENSABLE: tuple[str, ...] = ("control", "txn", "tombstones", "keyed", "record", "batches", "segments", "batch")
_DISPENSABLE += ("producers", "keys", "ratio", "codecs", "from")
"""What a narrow terminal is not shown, in this order."""
_GAP = "  "


def lines(found: Sequence[Stats], *, full: bool, internal: bool, width: int | None) -> list[str]:
    """The table of `found` with totals: Kafka's internal topics behind the others, and one line each unless `internal`;
    a line for all at the end. width: characters there are; None: as many as it takes.
    """
    own = [stats for stats in found if not _is_internal(stats)]
    kafkas = [stats for stats in found if _is_internal(stats)]
    rows = [*own, *_by_topic(own, full)]
    rows += [*kafkas, *_by_topic(kafkas, full)] if internal else _folded(kafkas, full)
    if len({stats.topic for stats in found}) > 1:
        rows.append(_sum(None, found, full))
    return table(rows, full=full, width=width)


def table(found: Sequence[Stats], *, full: bool, width: int | None) -> list[str]:
    """Lines: a head, one for each of `found`, and which columns had no room. Where some have none, times are to the
    minute, and of several codecs there is the most frequent one, and how many others.
    """
    head = _HEAD + (_FULL_HEAD if full else ())
    for is_short in (False, True):
        rows = [head, *(_row(stats, full, is_short) for stats in found)]
        widths = {name: max(len(row[column]) for row in rows) for column, name in enumerate(head)}
        hidden = _hidden(widths, width)
        if not hidden:
            break
    shown = []
    for row in rows:
        cells = (
            cell.ljust(widths[name]) if name in _LEFT else cell.rjust(widths[name])
            for cell, name in zip(row, head, strict=True)
            if name not in hidden
        )
        shown.append(_GAP.join(cells).rstrip())
    if hidden:
        names = [name for name in head if name in hidden]
        shown += textwrap.wrap(f"no room for: {', '.join(names)} (--wide or --json has all)", width or 80)
    return shown


def _hidden(widths: Mapping[str, int], width: int | None) -> set[str]:
    """The columns to leave out."""
    hidden: set[str] = set()
    candidates = iter([name for name in _DISPENSABLE if name in widths])
    while width is not None:
        shown = [size for name, size in widths.items() if name not in hidden]
        if sum(shown) + len(_GAP) * (len(shown) - 1) <= width:
            break
        name = next(candidates, None)
        if name is None:
            break
        hidden.add(name)
    return hidden


def _is_internal(stats: Stats) -> bool:
    return (stats.topic or "").startswith("__")


def _row(stats: Stats, full: bool, is_short: bool) -> tuple[str, ...]:
    cells = (
        _name(stats),
        str(stats.segments),
        readable(stats.bytes),
        str(stats.batches),
        str(stats.records),
        "" if stats.start_offset is None else f"{stats.start_offset}..{stats.end_offset}",
        _time(stats.oldest_ms, is_short),
        _time(stats.newest_ms, is_short),
        _codecs(stats, is_short),
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


def _time(timestamp_ms: int | None, is_short: bool) -> str:
    """To the second, or to the minute; the milliseconds are in `--json`."""
    if timestamp_ms is None:
        return "-"
    text = time_text(timestamp_ms).partition(".")[0]
    return text[: text.rindex(":")] if is_short else text


def _codecs(stats: Stats, is_short: bool) -> str:
    if len(stats.codecs) == 1:
        return next(iter(stats.codecs))
    if is_short and stats.codecs:
        ((name, count),) = stats.codecs.most_common(1)
        return f"{name}:{_percent(count, stats.batches)} +{len(stats.codecs) - 1}"
    return ",".join(f"{name}:{_percent(count, stats.batches)}" for name, count in stats.codecs.most_common()) or "-"


def _percent(part: int, whole: int) -> str:
    if not part:
        return "0" if whole else "-"
    share = part / whole
    # Neither nothing nor all may look like it.
    return "<1%" if share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def _number(count: int, exact: bool) -> str:
    return str(count) if exact else f"~{count}"


def _by_topic(found: Sequence[Stats], full: bool) -> list[Stats]:
    """A line for each topic of several partitions."""
    return [_sum(topic, group, full) for topic, group in _grouped(found).items() if len(group) > 1]


def _folded(found: Sequence[Stats], full: bool) -> list[Stats]:
    """A line for each topic."""
    return [_sum(topic, group, full) if len(group) > 1 else group[0] for topic, group in _grouped(found).items()]


def _grouped(found: Sequence[Stats]) -> dict[str | None, list[Stats]]:
    by_topic: dict[str | None, list[Stats]] = {}
    for stats in found:
        by_topic.setdefault(stats.topic, []).append(stats)
    return by_topic


def _sum(topic: str | None, group: Sequence[Stats], full: bool) -> Stats:
    total = Stats(topic, None, full, partitions=0)
    for stats in group:
        total.add(stats)
    return total
