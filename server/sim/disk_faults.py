"""`python -m barnabas.server.sim.disk_faults [--brokers 1] [--seeds 1-3] [--each 2 | --every 7] [--codes EIO,ENOSPC]
[--limit 600]`: each call of the disk fails once.

A seed is run once to count the calls of each broker's disk while there is load: produce requests of several clients in
one round (one broker: acks 1 and all; three: all), idempotent and in transactions, group commits, segments that roll,
`flush.messages`, LogAppendTime, checkpoints, compaction; and a topic is made, records deleted from it, and segments
removed by retention (`chores.py`). Then it is run again for every call and every error, with
that call failing (`--each`: for so many calls of each kind, a kind being what is called on which sort of file;
`--every`: for one in so many of these pairs of a call and an error). The checks are those of every simulated run
(`checks.py`, `ledger.py`): what was acknowledged, committed or decided is read back at the end, once and whole, and so
it is by consumers meanwhile. A broker whose only log directory has failed ends, and is started again on the same disk,
which works by then.

Errors that say nothing about the disk (EMFILE, EINTR) must end no broker. `replication/tests/store/test_journal.py`
lets calls of a broker's own metadata store fail.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from time import monotonic
from typing import NamedTuple

from barnabas.server.sim.run import DiskFault, Outcome, simulate

CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EDQUOT, errno.EINTR)


class Figures:
    """What a campaign has seen. kinds: of calls that have failed."""

    def __init__(self) -> None:
        self.runs = self.struck = self.acknowledged = self.commits = self.transactions = 0
        self.codes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.failed: list[Failed] = []

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.runs} runs, {self.struck} calls of {len(self.kinds)} kinds failed ({codes}); "
            f"{self.acknowledged} records acknowledged, {self.commits} offsets committed, {self.transactions} "
            f"transactions; {f'{len(self.failed)} runs with something lost or wrong' if self.failed else 'lost=0'}"
        )

    def add(self, seed: int, fault: DiskFault, outcome: Outcome) -> None:
        self.runs += 1
        self.acknowledged += outcome.acknowledged
        self.commits += outcome.committed
        self.transactions += outcome.transactions
        kind = outcome.disks[fault.broker_id].struck if outcome.disks else None
        if kind is not None:
            self.struck += 1
            self.codes[errno.errorcode[fault.code]] += 1
            self.kinds[kind] += 1
        if outcome.violations:
            self.failed.append(Failed(seed, fault, kind, outcome.violations))


class Failed(NamedTuple):
    seed: int
    fault: DiskFault
    kind: str | None
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, broker {self.fault.broker_id}, call {self.fault.number} ({self.kind}), "
            f"{errno.errorcode[self.fault.code]}: {self.violations[0]}"
        )


def faults(seed: int, brokers: int, every: int, each: int | None, codes: Sequence[int]) -> Iterable[DiskFault]:
    """The faults of a seed: all pairs of a call and an error, or those of `each` calls of a kind, on any broker; or one
    in `every` of these.
    """
    counted = simulate(seed, brokers=brokers, seconds=0, disk=DiskFault(1, 0, 0))
    assert not counted.violations, counted
    random = Random(seed)
    if each is not None:
        kinds: dict[str, list[tuple[int, int]]] = {}
        for broker_id, disk in counted.disks.items():
            for number, kind in enumerate(disk.calls, 1):
                kinds.setdefault(kind, []).append((broker_id, number))
        chosen = [random.sample(kinds[kind], min(each, len(kinds[kind]))) for kind in sorted(kinds) for _ in codes]
        faults = [DiskFault(*call, codes[i % len(codes)]) for i, calls in enumerate(chosen) for call in calls]
    else:
        faults = [
            DiskFault(broker_id, number, code)
            for broker_id, disk in counted.disks.items()
            for number in range(1, len(disk.calls) + 1)
            for code in codes
        ]
    return random.sample(faults, -(-len(faults) // every))


def campaign(
    seeds: Iterable[int],
    *,
    brokers: int = 1,
    every: int = 1,
    each: int | None = None,
    codes: Sequence[int] = CODES,
    limit_s: float = float("inf"),
    report: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Run all faults of all seeds, but begin none after `limit_s`."""
    figures, begin = Figures(), monotonic()
    for seed in seeds:
        for fault in faults(seed, brokers, every, each, codes):
            if monotonic() - begin > limit_s:
                return figures
            known = len(figures.failed)
            figures.add(seed, fault, simulate(seed, brokers=brokers, seconds=0, disk=fault))
            if len(figures.failed) > known:
                report(str(figures.failed[-1]))
            elif figures.runs % 200 == 0:
                report(str(figures))
    return figures


def main(arguments: list[str]) -> int:
    """0 if nothing was lost, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.server.sim.disk_faults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seeds", default="1", metavar="A-B", help="seeds, first and last (or just one)")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="one in so many pairs of a call and an error")
    parser.add_argument("--each", type=int, metavar="N", help="with every error, N calls of each kind")
    parser.add_argument("--codes", default=",".join(errno.errorcode[code] for code in CODES))
    parser.add_argument("--limit", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--trace", metavar="BROKER:CALL", help="show one fault of the first seed, with the first code")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    codes = [getattr(errno, name) for name in options.codes.split(",")]
    if options.trace:
        broker_id, _, number = options.trace.partition(":")
        fault = DiskFault(int(broker_id), int(number), codes[0])
        outcome = simulate(int(first), brokers=options.brokers, seconds=0, disk=fault, echo=print)
        print(outcome)
        return 1 if outcome.violations else 0
    figures = campaign(
        range(int(first), int(last or first) + 1),
        brokers=options.brokers,
        every=options.every,
        each=options.each,
        codes=codes,
        limit_s=options.limit,
        report=lambda text: print(text, flush=True),
    )
    print(figures)
    for kind, count in sorted(figures.kinds.items()):
        print(f"{count:6} {kind}")
    return 1 if figures.failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are walked in another order in every process, unless the hash seed is fixed.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "barnabas.server.sim.disk_faults", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
