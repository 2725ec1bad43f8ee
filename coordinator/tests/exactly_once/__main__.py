"""python -m barnabas.coordinator.tests.exactly_once --seeds 1-5000 [--steps 40] [--trace]"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from dataclasses import astuple, fields

from barnabas.coordinator.tests.exactly_once.run import Counts, run


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.coordinator.tests.exactly_once", description="Exactly once, simulated"
    )
    parser.add_argument("--seeds", default="1-200", help="FIRST-LAST, or one")
    parser.add_argument("--steps", type=int, default=40, help="of about a second each")
    parser.add_argument("--trace", action="store_true", help="tell what happened in a run that fails")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    logging.disable(logging.ERROR)
    begun, failed = time.monotonic(), []
    total: list[float] = [0] * len(fields(Counts))
    slowest = 0.0
    for seed in seeds:
        try:
            counts = run(seed, options.steps, trace=options.trace)
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            continue
        total = [one + other for one, other in zip(total, astuple(counts), strict=True)]
        slowest = max(slowest, counts.ended_s)
    told = ", ".join(f"{value:,.0f} {field.name}" for field, value in zip(fields(Counts), total, strict=True))
    print(f"{len(seeds)} seeds in {time.monotonic() - begun:.0f} s: {told}; nothing open after {slowest:.1f} s at most")
    if failed:
        print(f"{len(failed)} failed: {failed[:50]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
