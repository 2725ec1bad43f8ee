"""The figures of docs/performance.md: `python -m compat_tests.bench.page docs/data/*.json` writes them from results.

The text between two marks of the page is replaced, the rest is left alone; plots go to docs/plots. The files are the
`--json` of runs, several of which may hold pieces of the same whole. Without files: those of docs/data. With `--check`
nothing is written; the exit status is 1 if the page is not what the files say.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from compat_tests.bench.brokers import KAFKA
from compat_tests.bench.plots import plots
from compat_tests.bench.report import emphasised, heading, shown, spread_of
from compat_tests.bench.results import Line, Results, cpu_line, line, lines, memory_after, merge, read
from compat_tests.bench.rows import ROWS, Quantity
from compat_tests.harness.jars import PROJECT_ROOT

DOCUMENTS = PROJECT_ROOT / "docs"
PAGE = DOCUMENTS / "performance.md"
BEGIN = "<!-- figures: written by `python -m compat_tests.bench.page`, from docs/data -->\n"
END = "<!-- end of figures -->\n"
WIDTH = 120


def figures(runs: Sequence[Results]) -> str:
    """The text between the marks. `runs`: merged."""
    if not runs:
        return "\nNo run is kept in docs/data.\n\n"
    named = [name(results) for results in runs]
    parts = [f"![{title}](plots/{file})" for file, title in _pictures()]
    for results, title in zip(runs, named, strict=True):
        parts.append(f"### {title}" if len(runs) > 1 else "")
        parts.append(textwrap.fill(heading(results.about), WIDTH))
        for section in dict.fromkeys(row.section for row in ROWS):
            parts += _section(results, section, "####" if len(runs) > 1 else "###")
    return "\n" + "\n\n".join(filter(None, parts)) + "\n\n"


def name(results: Results) -> str:
    """What is said of the run, short."""
    ours = results.about["ours"]
    build = "PGO" if ours["pgo"] else "no PGO"
    processor = results.about["machine"]["processor"]
    return f"{'barnabas-native' if ours['native'] else 'Pure Python'}, {ours['python']}, {build}, {processor}"


def _pictures() -> Iterator[tuple[str, str]]:
    yield "rates.svg", "Throughput and rates"
    yield "times.svg", "Times and memory"
    yield "cpu.svg", "CPU time of the broker"


def _section(results: Results, section: str, level: str) -> Iterator[str]:
    found = [one for one in lines(results) if one.section == section]
    memory = memory_after(results)
    found += [memory] if memory is not None and memory.section == section else []
    if not found:
        return
    yield f"{level} {section[0].upper()}{section[1:]}"
    yield "\n".join(
        ["| measure | Apache Kafka | Barnabas | ratio | rounds | noise |", "| --- " * 6 + "|", *map(_row, found)]
    )
    costs = list(_costs(results, section))
    if costs:
        head = "| the broker's | CPU: Apache Kafka | CPU: Barnabas | ratio | MB: Apache Kafka | MB: Barnabas |"
        yield "\n".join([head, "| --- " * 6 + "|", *costs])
    noisy = dict.fromkeys(f"{one.row}: {one.why}." for one in found if one.why)
    if noisy:
        yield "\n".join(textwrap.fill(f"- Too noisy. {each}", WIDTH, subsequent_indent="  ") for each in noisy)


def _row(one: Line) -> str:
    what = f"{one.row}, {one.quantity.unit}"
    if one.why:
        return f"| {what} | | | too noisy | | |"
    cells = [what, shown(one.theirs), shown(one.ours), emphasised(one), spread_of(one), f"{one.noise:.0%}"]
    return f"| {' | '.join(cells)} |"


def _costs(results: Results, section: str) -> Iterator[str]:
    for row in ROWS:
        cpu = cpu_line(results, row) if row.section == section else None
        if cpu is None or cpu.ratio is None:
            continue
        memory = line(results, row, Quantity("resident_mb", "MB"))
        cells = [
            f"{row.name}, {cpu.quantity.unit.removeprefix('CPU ')}",
            shown(cpu.theirs),
            shown(cpu.ours),
            emphasised(cpu),
        ]
        yield f"| {' | '.join([*cells, shown(memory.theirs), shown(memory.ours)])} |"


def replaced(page: str, text: str) -> str:
    """The page with other figures. Raises ValueError when it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for figures")
    return f"{before}{BEGIN}{text}{END}{after}"


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench.page", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    files = options.files or sorted((DOCUMENTS / "data").glob("*.json"))
    runs = [results for results in merge(map(read, files)) if results.other == KAFKA]
    wanted = {PAGE: replaced(PAGE.read_text(encoding="utf-8"), figures(runs))}
    if runs:
        drawn = plots(runs, [name(results) for results in runs])
        wanted |= {DOCUMENTS / "plots" / file: text for file, text in drawn.items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(PROJECT_ROOT)}: {'is not what the results say' if options.check else 'written'}")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
