"""Plots of results as SVG, drawn by hand: a few lines of text that a diff can show, readable on light and on dark.

Each line is a quantity of a row: a dot at the median, a bar from the worst to the best round. To the right is better,
on a logarithmic scale whose middle is Apache Kafka. A second run of the same rows (without the native module, say) has
hollow dots, those of further ones (another machine, say) are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log2
from statistics import median

from compat_tests.bench.results import Line, Results, cpu_line, lines, memory_after
from compat_tests.bench.rows import ROWS

WIDTH, LABELS, NUMBERS = 900, 420, 60
LINE, TOP, BOTTOM = 20, 46, 34
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.faint { fill: #57606a }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #8c959f; stroke-opacity: .25 }
.one { stroke: #57606a }
.won { stroke: #1a7f37; fill: #1a7f37 }
.lost { stroke: #bc4c00; fill: #bc4c00 }
.bar { stroke-width: 2; stroke-opacity: .45 }
.hollow { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .faint { fill: #9198a1 }
  .one { stroke: #9198a1 }
  .won { stroke: #3fb950; fill: #3fb950 }
  .lost { stroke: #f0883e; fill: #f0883e }
  .hollow { fill: none }
}
"""


@dataclass(frozen=True)
class Mark:
    """How good ours is beside the other: the median and the rounds, 2 is twice as good. None: nothing to be shown."""

    middle: float
    rounds: Sequence[float]


@dataclass(frozen=True)
class Entry:
    """A line of a plot: one mark for each run."""

    section: str
    label: str
    marks: Sequence[Mark | None]


def plots(runs: Sequence[Results], names: Sequence[str]) -> dict[str, str]:
    """SVG by the name of the file. `names`: what the runs are called in the legend."""
    return {
        "rates.svg": _svg("Throughput and rates", _entries(runs, _rates), names),
        "times.svg": _svg("Times and memory", _entries(runs, _times), names),
        "cpu.svg": _svg("CPU time of the broker", _entries(runs, _cpu), names),
    }


def _rates(results: Results) -> Iterator[Line]:
    return (one for one in lines(results) if one.quantity.more_is_better)


def _times(results: Results) -> Iterator[Line]:
    yield from (one for one in lines(results) if not one.quantity.more_is_better)
    yield from filter(None, [memory_after(results)])


def _cpu(results: Results) -> Iterator[Line]:
    return filter(None, (cpu_line(results, row) for row in ROWS))


def _entries(runs: Sequence[Results], choose: Callable[[Results], Iterator[Line]]) -> list[Entry]:
    """The lines of all runs, in the order of the rows."""
    found: dict[tuple[str, str], list[Mark | None]] = {}
    for number, results in enumerate(runs):
        for one in choose(results):
            key = one.section, f"{one.row}, {one.quantity.unit}"
            found.setdefault(key, [None] * len(runs))[number] = _mark(one)
    order = list(dict.fromkeys(row.section for row in ROWS))
    entries = [Entry(section, label, marks) for (section, label), marks in found.items()]
    return sorted(entries, key=lambda entry: order.index(entry.section))


def _mark(one: Line) -> Mark | None:
    if one.ratio is None:
        return None
    rounds = [ratio if one.quantity.more_is_better else 1 / ratio for ratio in one.ratios if ratio]
    return Mark(median(rounds), rounds) if rounds else None


def _svg(title: str, entries: Sequence[Entry], names: Sequence[str]) -> str:
    marks = [mark for entry in entries for mark in entry.marks if mark is not None]
    ends = [abs(log2(value)) for mark in marks for value in (*mark.rounds, mark.middle)]
    reach = max(1, min(6, int(max(ends, default=1)) + 1))

    def place(value: float) -> float:
        """Where on the axis a value is; what is beyond it stands at its end."""
        part = max(-1.0, min(1.0, log2(value) / reach))
        return LABELS + 14 + (1 + part) / 2 * (WIDTH - LABELS - NUMBERS - 28)

    kinds = ("filled", "hollow", *["small"] * len(names))
    legend = [f"{kind}: {name}" for kind, name in zip(kinds, names, strict=False)] if len(names) > 1 else []
    top = TOP + LINE * max(0, len(legend) - 1)
    body = []
    y, section = top + LINE, ""
    for entry in entries:
        if entry.section != section:
            section = entry.section
            y += 6
            body.append(f'<text class="title" x="8" y="{y}">{escape(section)}</text>')
            y += LINE
        body.append(f'<text class="end" x="{LABELS}" y="{y}">{escape(entry.label)}</text>')
        for number, mark in enumerate(entry.marks):
            body += _drawn(mark, number, place, y)
        first = next((mark for mark in entry.marks if mark is not None), None)
        said = (
            f"{first.middle:.2f}"
            if first is not None and first.middle < 10
            else f"{first.middle:.0f}"
            if first
            else "–"
        )
        body.append(f'<text class="end" x="{WIDTH - 8}" y="{y}">{said}</text>')
        y += LINE
    height = y + BOTTOM
    axis = []
    for power in range(-reach, reach + 1):
        x, value = place(2.0**power), f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        axis.append(f'<line class="{"grid" if power else "one"}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y - 8}"/>')
        axis.append(f'<text class="middle faint" x="{x:.1f}" y="{y + 8}">{value}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="8" y="20">{escape(title)}: times as good as Apache Kafka</text>',
            *(
                f'<text class="faint" x="8" y="{38 + LINE * row}">{escape(one)}</text>'
                for row, one in enumerate(legend)
            ),
            *axis,
            *body,
            "</svg>\n",
        ]
    )


def _drawn(mark: Mark | None, number: int, place: Callable[[float], float], y: int) -> Iterator[str]:
    if mark is None:
        return
    kind = "won" if mark.middle >= 1 else "lost"
    middle = y - 4
    if len(mark.rounds) > 1:
        first, last = place(min(mark.rounds)), place(max(mark.rounds))
        yield f'<line class="bar {kind}" x1="{first:.1f}" x2="{last:.1f}" y1="{middle}" y2="{middle}"/>'
    hollow, radius = " hollow" if number else "", 4 if number < 2 else 2.5
    yield f'<circle class="{kind}{hollow}" cx="{place(mark.middle):.1f}" cy="{middle}" r="{radius}"/>'
