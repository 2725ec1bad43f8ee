"""`python -m barnabas.server.sim --seeds 1-100 [--seconds 30] [--limit 300] [--trace]`: see the package."""

from __future__ import annotations

import argparse
import os
import sys
from time import process_time

from barnabas.server.sim.run import simulate


def main(arguments: list[str]) -> int:
    """0 if all seeds went well, 1 if any failed."""
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.server.sim", description="A cluster of three brokers from a seed."
    )
    parser.add_argument("--seeds", default="1-10", metavar="A-B", help="seeds to run, first and last (or just one)")
    parser.add_argument("--seconds", type=float, default=30.0, help="virtual seconds in which things go wrong")
    parser.add_argument("--brokers", type=int, default=3, help="how many")
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="begin no further seed after so many seconds of CPU"
    )
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--quiet", action="store_true", help="print failing seeds and the sum only")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    begin, failed, count, acknowledged = process_time(), [], 0, 0
    for seed in range(int(first), int(last or first) + 1):
        if process_time() - begin > options.limit:
            break
        outcome = simulate(
            seed, brokers=options.brokers, seconds=options.seconds, echo=print if options.trace else None
        )
        count += 1
        acknowledged += outcome.acknowledged
        if outcome.violations:
            failed.append(seed)
        if outcome.violations or not options.quiet:
            print(outcome, outcome.digest if options.trace else "", flush=True)
    print(
        f"{count} seeds, {acknowledged} records acknowledged, {process_time() - begin:.0f} s; "
        f"{f'failing: {failed}' if failed else 'all well'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are walked in another order in every process, unless the hash seed is fixed.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "barnabas.server.sim", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
