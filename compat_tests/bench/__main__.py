"""The command: `python -m compat_tests.bench [--rounds N] [--quick] [--only TEXT] [--json FILE] [--markdown FILE]`,
with `--cluster` for three brokers that replicate, with `--storage` for compaction, recovery and start-up, with
`--transactions` for those, with `--groups` for offset commits and for a hundred members to a stable assignment, with
`--tls` over TLS, with `--spark-log` for Spark's two ways to read a topic.

`--full-cache` fills the machine's page cache before each measure, as the cache of any machine is that has been up for a
while; page_cache.py says why that matters on a virtual machine. With `--cluster` and `--storage` once, at the start.

`--steady` takes more rounds and counts those in which the machine kept its speed (steadiness.py): for machines whose
cores are shared with others.

`--before CHECKOUT` puts the broker of another checkout of this project where Apache Kafka stands: what a change costs
or brings, both in one alternating run (not with `--cluster`, `--storage` and `--spark-log`).

A round of a measure whose client fails, on either broker, is said and not counted; the exit status is 1 then. With
`--cluster`, `--storage` and `--spark-log` a failure ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compat_tests.bench import cluster, coordination, storage, tls
from compat_tests.bench.measures import MEASURES, Scale, Subject, first_answer, start_subject, start_up, warm_up
from compat_tests.bench.page_cache import PageCache
from compat_tests.bench.report import BEFORE, KAFKA, OURS, Results, add, table
from compat_tests.bench.steadiness import AGREE, PATIENCE, probe, spread
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.processes import Failed


@dataclass(frozen=True)
class Suite:
    """Measures in the order in which they run, and what a broker sees before the first."""

    measures: Mapping[str, Callable[[Subject], dict[str, float]]]
    warm_up: Callable[[Subject], None]
    start: Callable[[str, Path, Path, Scale], Subject] = start_subject


BASE = Suite(MEASURES, warm_up)


def main() -> None:
    """Run the rounds and print the table; everything started is stopped, whatever happens."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench", description="Apache Kafka 4.3.1 and Barnabas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little work, one round: shows that everything runs")
    parser.add_argument("--records", type=int, help="records of each throughput measure (default: 1,000,000)")
    parser.add_argument("--cluster", action="store_true", help="three brokers with ZooKeeper, Apache Kafka 3.9.1's too")
    parser.add_argument("--storage", action="store_true", help="compaction, recovery, start with many partitions")
    parser.add_argument("--transactions", action="store_true", help="transactions of several sizes and clients")
    parser.add_argument("--groups", action="store_true", help="offset commits, 100 members to a stable assignment")
    parser.add_argument("--tls", action="store_true", help="producing and consuming over TLS")
    parser.add_argument("--gigabytes", type=float, help="to be recovered by --storage (default: 3)")
    parser.add_argument("--partitions", type=int, help="of the start by --storage (default: 2000)")
    parser.add_argument(
        "--spark-log", action="store_true", help="Spark: its Kafka source and barnabas-log, on one topic"
    )
    parser.add_argument("--full-cache", action="store_true", help="fill the page cache before each measure")
    parser.add_argument("--steady", action="store_true", help="count rounds only in which the machine kept its speed")
    parser.add_argument("--only", default="", help="measures whose name contains this text (consuming needs producing)")
    parser.add_argument("--brokers", default=f"{KAFKA},{OURS}", help="which of the two, separated by a comma")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with this one, not with Apache Kafka")
    parser.add_argument("--json", metavar="FILE", help="write every value there")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there")
    parser.add_argument(
        "--directory", type=Path, help="where the brokers keep their data (default: a temporary directory)"
    )
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    scale = Scale.quick() if options.quick else Scale()
    storage_scale = storage.StorageScale.quick() if options.quick else storage.StorageScale()
    storage_scale = replace(storage_scale, recovery_gb=options.gigabytes or storage_scale.recovery_gb)
    storage_scale = replace(storage_scale, partitions=options.partitions or storage_scale.partitions)
    if options.records:
        scale = replace(scale, records=options.records, warm_up_records=options.records // 2)
    names = options.brokers.split(",")
    if options.before is not None:
        if options.cluster or options.storage or options.spark_log:
            parser.error("--before goes with the measures of one broker alone")
        if not (options.before / "server").is_dir():
            parser.error(f"--before {options.before}: a checkout of this project is expected")
        names = [BEFORE, OURS]
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="compat-bench-", dir=options.directory) as temporary:
        if options.spark_log:
            from compat_tests.bench import spark_log

            records = options.records or (100_000 if options.quick else 2_000_000)
            text = spark_log.run(Path(temporary), names, rounds, records, options.only)
            print(text)
            if options.markdown:
                Path(options.markdown).write_text(text + "\n")
            return
        failures = 0
        cache = PageCache(Path(temporary) / "page-cache") if options.full_cache else None
        if cache is not None:
            say(f"the page cache holds {cache.fill() >> 20:,} MiB more")
        if options.cluster:
            cluster.run_rounds(Path(temporary), names, rounds, scale, options.only, results, say)
        elif options.storage:
            storage.run_rounds(Path(temporary), names, rounds, storage_scale, options.only, results, say)
        else:
            suite = BASE
            if options.transactions:
                suite = Suite(coordination.TRANSACTIONS, coordination.warm_up_transactions)
            elif options.groups:
                suite = Suite(coordination.GROUPS, coordination.warm_up_groups)
            elif options.tls:
                suite = Suite(tls.MEASURES, tls.warm_up, tls.start_subject)
            directory = Path(temporary)
            failures = run_rounds(
                directory,
                names,
                rounds,
                scale,
                options.only,
                results,
                suite,
                steady=options.steady,
                cache=cache,
                before=(options.before or PROJECT_ROOT).resolve(),
            )
    peer, other = "Apache Kafka 3.9.1" if options.cluster else "Apache Kafka 4.3.1", KAFKA
    if options.before is not None:
        peer, other = "Barnabas before", BEFORE
    text = heading(storage_scale.text if options.storage else scale.text, rounds) + "\n\n" + table(results, peer, other)
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    if options.json:
        Path(options.json).write_text(
            json.dumps(
                {"scale": vars(storage_scale if options.storage else scale), "rounds": rounds, "results": results},
                indent=1,
            )
        )
    if failures:
        raise SystemExit(1)


def run_rounds(
    directory: Path,
    names: list[str],
    rounds: int,
    scale: Scale,
    only: str,
    results: Results,
    suite: Suite,
    *,
    steady: bool,
    cache: PageCache | None = None,
    before: Path = PROJECT_ROOT,
) -> int:
    """Measure start-up first, then all else on brokers that stay up; the order of the brokers alternates. `steady`:
    take more rounds, and count those in which the machine kept its speed. `cache`: is full before each measure.
    Returns how many rounds of a measure failed.
    """
    failures = 0
    if suite is BASE and only in "start-up and idle memory":
        for turn in range(rounds):
            for name in ordered(names, turn):
                add(results, "start-up and idle memory", name, start_up(name, directory / f"start-{name}", before))
                say(f"round {turn + 1}: start-up of {name}")
    chosen = {title: measure for title, measure in suite.measures.items() if only in title}
    if not chosen:
        return failures
    subjects: dict[str, Subject] = {}
    try:
        for name in names:
            subjects[name] = suite.start(name, directory / name, before, scale)
            first_answer(subjects[name].broker, time.perf_counter())
            suite.warm_up(subjects[name])
            say(f"{name} is warm")
        counted = dict.fromkeys(chosen, 0)
        for turn in range(rounds * (PATIENCE if steady else 1)):
            if min(counted.values()) >= rounds:
                break
            for title, measure in chosen.items():
                found, probes = {}, [probe()]
                for name in ordered(names, turn):
                    os.sync()  # what was written before is not written to the disk meanwhile
                    if cache is not None:
                        cache.fill()
                    try:
                        found[name] = measure(subjects[name])
                    except Failed as failure:
                        failures += 1
                        say(f"round {turn + 1}: {title}: {name}: not counted, the client failed: {failure}")
                        break
                    probes.append(probe())
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in found[name].items())
                    say(f"round {turn + 1}: {title}: {name}: {shown}; probes {probes[-2]:.3f} {probes[-1]:.3f}")
                if len(found) < len(names):
                    continue
                if steady and spread(probes) > AGREE:
                    say(f"round {turn + 1}: {title}: not counted, the machine's speed changed by {spread(probes):.2f}")
                    continue
                counted[title] += 1
                for name, values in found.items():
                    add(results, title, name, values)
        for title, number in counted.items():
            if number < rounds:
                say(f"{title}: {number} of {rounds} rounds are counted")
    finally:
        for subject in subjects.values():
            subject.broker.stop()
    return failures


def ordered(names: list[str], turn: int) -> list[str]:
    """Return the brokers in the order of a round."""
    return names if turn % 2 == 0 else names[::-1]


def heading(scale: str, rounds: int) -> str:
    """Say what was run where."""
    cores = len(os.sched_getaffinity(0))
    python = platform.python_version()
    return (
        f"{rounds} round(s), medians; {scale}; {cores} cores, Python {python}, "
        f"load average before {os.getloadavg()[2]:.1f}, {time.strftime('%Y-%m-%d')}"
    )


def say(text: str) -> None:
    """Report progress on the error stream; the table alone goes to the output."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
