"""python -m compat_tests.faults.eos --rounds N --seed S --place alone|kafka-alone|ours3|mixed|kafka3"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.faults.eos.places import PLACES
from compat_tests.faults.eos.rounds import run


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.faults.eos", description="Exactly once under kill -9")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--place", choices=PLACES, default="alone")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--kinds", default="", help="only kinds with one of these texts in the name, split at commas")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there as well")
    parser.add_argument("--directory", type=Path, help="where the brokers keep data and logs, kept afterwards")
    options = parser.parse_args()
    kinds = [part for part in options.kinds.split(",") if part]
    with tempfile.TemporaryDirectory(prefix="eos-faults-") as temporary:
        directory = options.directory or Path(temporary)
        report = run(directory, options.place, options.rounds, kinds=kinds, seed=options.seed, say=say)
    print(report)
    if options.report:
        options.report.write_text(f"{report}\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
