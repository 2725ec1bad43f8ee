"""The table of results: `python -m compat_tests.bench.report FILE.json …` merges files and prints it as Markdown.

A ratio is ours by theirs, the median over the rounds that count; beside it the smallest and the largest. Above 1 is
good for what there should be more of, below 1 for time, CPU and memory; in bold where that is for us.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compat_tests.bench.brokers import KAFKA
from compat_tests.bench.results import Line, Results, cpu_line, line, lines, memory_after, merge, read
from compat_tests.bench.rows import MEMORY, ROWS, Quantity

PEER = "Apache Kafka"


def heading(about: dict[str, Any]) -> str:
    """Who was measured, where and when."""
    peer, ours, machine = about["peer"], about["ours"], about["machine"]
    build = "built with PGO" if ours["pgo"] else "built without PGO"
    native = f"barnabas-native {ours['native']}" if ours["native"] else "pure Python"
    quick = "Quick: these numbers say nothing. " if about["quick"] else ""
    quick += f"{about['part']:.0%} of the work. " if about["part"] != 1 else ""
    return quick + (
        f"{peer} and Barnabas {ours['version']} ({ours['commit']}, {native}, {ours['python']} {build}); "
        f"{about['rounds']} rounds, {about['date']}; {machine['cores']} cores, {machine['processor']}, "
        f"Linux {machine['kernel']}; {about['java']}, {about['clients']}"
    )


def table(results: Results, sections: Sequence[str] = ()) -> str:
    """The Markdown table; of these sections, or all."""
    peer = PEER if results.other == KAFKA else "before"
    head = f"| measure | unit | {peer} | Barnabas | ratio | rounds | CPU: {peer} | CPU: Barnabas | ratio | MB | noise |"
    found = [head, "| --- " * head.count(" |") + "|"]
    last = ""
    for one in [*lines(results), *filter(None, [memory_after(results)])]:
        if sections and one.section not in sections:
            continue
        found.append(_cells(results, one, repeated=one.row == last))
        last = one.row
    return "\n".join(found)


def _cells(results: Results, one: Line, *, repeated: bool) -> str:
    row = next((row for row in ROWS if row.name == one.row), None)
    cells = ["" if repeated else one.row, one.quantity.unit]
    if one.why:
        return f"| {' | '.join([*cells, '', '', f'none: {one.why}', '', '', '', '', '', ''])} |"
    cells += [shown(one.theirs), shown(one.ours), emphasised(one), spread_of(one)]
    cpu = cpu_line(results, row) if row is not None and not repeated else None
    if cpu is not None and not cpu.why:
        unit = cpu.quantity.unit.removeprefix("CPU ")
        cells += [f"{shown(cpu.theirs)} {unit}", shown(cpu.ours), emphasised(cpu)]
    else:
        cells += ["", "", ""]
    cells += [_memory(results, one) if row is not None and not repeated else "", f"{one.noise:.0%}"]
    return f"| {' | '.join(cells)} |"


def _memory(results: Results, one: Line) -> str:
    row = next(row for row in ROWS if row.name == one.row)
    if any(quantity.name == MEMORY.name for quantity in row.headline):
        return ""
    found = line(results, row, Quantity("resident_mb", "MB"))
    return f"{shown(found.theirs)} : {shown(found.ours)}" if found.theirs and found.ours else ""


def spread_of(one: Line) -> str:
    """How far the rounds are apart, and how many there are."""
    if len(one.ratios) < 2:
        return str(len(one.ratios) or "")
    return f"{min(one.ratios):.2f}–{max(one.ratios):.2f} ({len(one.ratios)})"


def emphasised(one: Line) -> str:
    """The ratio, bold where it is for us."""
    if one.ratio is None:
        return ""
    text = f"{one.ratio:.2f}" if one.ratio < 10 else f"{one.ratio:.0f}"
    good = one.ratio > 1 if one.quantity.more_is_better else one.ratio < 1
    return f"**{text}**" if good else text


def shown(value: float | None) -> str:
    """Three significant digits, or a whole number."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """A heading and a table for each pair of brokers."""
    for results in merge(map(read, paths)):
        yield f"{heading(results.about)}\n\n{table(results)}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("which files?")
    print("\n\n".join(documents([Path(name) for name in sys.argv[1:]])))
