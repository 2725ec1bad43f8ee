"""The command; see the package. Prints a table for each curve; `--json FILE` keeps the values."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from compat_tests.bench.brokers import KAFKA, OURS
from compat_tests.scale import connections, partitions, tails
from compat_tests.scale.subject import raise_descriptor_limit

IDLE_S = 30.0
SMALL_IDLE_S = 2.0
Curve = Callable[[str, Path, int, float], dict[str, float]]


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Measure, print, and return all values by row."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.scale", description=__doc__)
    parser.add_argument("what", choices=("partitions", "connections", "tails"))
    parser.add_argument("--peer", choices=(KAFKA,), help="measure Apache Kafka 4.3.1 instead of our broker")
    parser.add_argument("--counts", type=_numbers, help="of partitions or connections: 1000,2000")
    parser.add_argument("--rates", type=_numbers, help="of tails: records per second: 200,1000,10000")
    parser.add_argument("--only", default="", help="of tails: scenarios whose name has this in it")
    parser.add_argument("--seconds", type=float, default=10.0, help="of tails: how long each row is measured")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="of curves: how long nobody asks anything, s")
    parser.add_argument("--small", action="store_true", help="little work: shows that everything runs")
    parser.add_argument(
        "--directory", type=Path, help="where the brokers' data are while they run (default: temporary)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    raise_descriptor_limit()
    name = options.peer or OURS
    with tempfile.TemporaryDirectory(prefix="scale-", dir=options.directory) as temporary:
        place = Path(temporary) / "broker"
        if options.what == "tails":
            size = tails.Size.small() if options.small else tails.Size(seconds=options.seconds)
            found = tails.run(name, place, options.rates or size.rates, options.only, size, _say)
        else:
            module = partitions if options.what == "partitions" else connections
            counts = options.counts or ((20, 40) if options.small else module.COUNTS)
            found = _curve(module.measure, name, place, counts, SMALL_IDLE_S if options.small else options.idle)
            print(table(found, per=options.what.removesuffix("s")))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _say(line: str) -> None:
    print(line, flush=True)


def _curve(measure: Curve, name: str, place: Path, counts: Sequence[int], idle_s: float) -> dict[str, dict[str, float]]:
    found = {}
    for count in counts:
        values = found[str(count)] = measure(name, place, count, idle_s)
        _say(f"{count:,}: " + ", ".join(f"{what} {value:.4g}" for what, value in values.items()))
    return found


def table(found: dict[str, dict[str, float]], *, per: str) -> str:
    """Markdown: a row for each value, a column for each count, and last how much more one of them costs at the largest
    count than at the smallest: 1.0 is linear, below it is better. (Not for what is divided already.)
    """
    counts = list(found)
    first, last = found[counts[0]], found[counts[-1]]
    growth = int(counts[-1]) / int(counts[0])
    lines = [
        f"| | {' | '.join(f'{int(count):,}' for count in counts)} | growth per {per} |",
        "| --- |" + " --- |" * (len(counts) + 1),
    ]
    for what in first:
        is_divided = what.startswith("per_") or what.endswith("_ms") or first[what] <= 0
        grew = "" if is_divided else f"{last[what] / first[what] / growth:.2f}"
        lines.append(f"| {what} | {' | '.join(f'{found[count][what]:.3g}' for count in counts)} | {grew} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
