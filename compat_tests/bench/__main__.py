"""The command: Apache Kafka and Barnabas side by side, or two checkouts of Barnabas.

    python -m compat_tests.bench                            # everything, five rounds: two to three hours
    python -m compat_tests.bench --list                     # the rows
    python -m compat_tests.bench --only "small requests"    # a section, or text of rows' names; may be repeated
    python -m compat_tests.bench --minutes 9 --json a.json --resume     # a piece; again and again until it exits with 0
    python -m compat_tests.bench.report a.json b.json       # the table; of several files together
    python -m compat_tests.bench --before ../before --only "OffsetCommit"       # what a change costs or brings
    python -m compat_tests.bench --quick                    # shows that everything runs; its numbers say nothing

Brokers take turns on each row, in another order in each round. A first round warms both JVMs, Apache Kafka's and that
of the clients, and is thrown away. A round counts if others had no more than 6 % of the machine (`--noise-max`) and the
machine kept its speed; up to twice as many rounds are taken as are asked for, and a row of which fewer than three count
has no ratio.

The page cache is full before each measure, as the cache of any machine is that has been up for a while
(machine/page_cache.py); `--no-full-cache` leaves it as it is.

A row whose client fails is said and not counted; the exit status is 1 then. It is 3 when the time was over before all
rows had their rounds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from compat_tests.bench import rows
from compat_tests.bench.about import about
from compat_tests.bench.brokers import BEFORE, KAFKA, OURS, Side
from compat_tests.bench.loads.java_client import JavaClient
from compat_tests.bench.loads.values import Values
from compat_tests.bench.machine.noise import NOISE_MAX
from compat_tests.bench.machine.page_cache import PageCache
from compat_tests.bench.measures.context import Context, Scale
from compat_tests.bench.report import heading, table
from compat_tests.bench.results import Results, key, read
from compat_tests.bench.runs import Plan, Runner


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m compat_tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="a section, or text of rows; may be repeated"
    )
    made.add_argument("--list", action="store_true", help="say which rows there are, and stop")
    made.add_argument("--rounds", type=int, default=5, help="that count, for each row (default: 5)")
    made.add_argument("--quick", action="store_true", help="one round of little work: shows that everything runs")
    made.add_argument("--part", type=float, default=1.0, metavar="P", help="of the work, for a short look (default: 1)")
    made.add_argument("--minutes", type=float, help="begin no round after this time")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every value there, after each round")
    made.add_argument("--resume", action="store_true", help="go on with what the file of --json holds")
    made.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    made.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with this one, not with Apache Kafka")
    made.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter of our broker")
    made.add_argument("--pure", action="store_true", help="our broker without its native module (BARNABAS_PURE=1)")
    made.add_argument("--alone", choices=(KAFKA, OURS), help="measure one broker only")
    made.add_argument(
        "--noise-max",
        type=float,
        default=NOISE_MAX * 100,
        metavar="PERCENT",
        help="(default: 6; 100: all rounds count)",
    )
    made.add_argument("--full-cache", action=argparse.BooleanOptionalAction, default=True, help="(default: yes)")
    made.add_argument("--directory", type=Path, help="where brokers keep their data (default: a temporary directory)")
    return made


def main(arguments: list[str]) -> int:
    """Run the rounds and print the table; everything started is stopped, whatever happens."""
    options = parser().parse_args(arguments)
    chosen = rows.chosen(options.only)
    if options.before is not None:
        if not (options.before / "server").is_dir():
            parser().error(f"--before {options.before}: a checkout of this project is expected")
        chosen = [row for row in chosen if row.place not in ("four", "three")]
    if options.list or not chosen:
        print("\n".join(f"{row.section}: {row.name}" for row in chosen or rows.ROWS))
        return 0 if chosen else 2
    if options.pure:
        os.environ["BARNABAS_PURE"] = "1"
    # For the brokers of a cluster, which the suite starts.
    os.environ["BARNABAS_COMMAND"] = f"{options.python} -P -m barnabas"
    ours = Side(OURS, options.python)
    other = Side(BEFORE, options.python, options.before.resolve()) if options.before is not None else Side(KAFKA)
    sides = [side for side in (other, ours) if options.alone in (None, side.name)]
    rounds = 1 if options.quick else options.rounds
    results = Results(about(ours, other, rounds, quick=options.quick, part=options.part))
    if options.resume and options.json is not None and options.json.exists():
        had = read(options.json)
        if key(had) != key(results):
            parser().error(f"--resume {options.json}: other brokers, or another processor, were measured for it")
        results.rows = had.rows

    def save() -> None:
        if options.json is not None:
            results.write(options.json)

    with tempfile.TemporaryDirectory(prefix="compat-bench-", dir=options.directory) as temporary:
        directory = Path(temporary)
        full = options.full_cache and not options.quick
        cache = PageCache(directory / "page-cache") if full else None
        if cache is not None:
            say(f"the page cache holds {cache.fill() >> 20:,} MiB more")
        plan = Plan(
            rounds,
            None if options.quick else options.noise_max / 100,
            None if options.minutes is None else time.monotonic() + options.minutes * 60,
            cache,
        )
        values = Values(directory / "values")
        java = JavaClient(directory / "java-client.log")
        scale = Scale.quick() if options.quick else Scale().part(options.part)
        context = Context(directory, scale, values, java)
        runner = Runner(context, sides, plan, results, save, say)
        try:
            runner.run(chosen)
        finally:
            java.stop()
        results.about["values"] = values.digests()
        save()
    text = f"{heading(results.about)}\n\n{table(results)}"
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(f"{text}\n")
    left = [row.name for row in chosen if runner.wants(row)]
    if plan.over and left:
        say(f"the time is over; rows that want more rounds: {len(left)} of {len(chosen)}")
    return 1 if runner.failures else 3 if left else 0


def say(text: str) -> None:
    """Report progress on the error stream; the table alone goes to the output."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def ended(number: int, _: FrameType | None) -> None:
    """SIGTERM, from `timeout` say, stops what was started as Ctrl-C does."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    sys.exit(main(sys.argv[1:]))
