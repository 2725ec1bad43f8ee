"""python -m compat_tests.fuzz.strangers [--inputs N] [--seed N] …; … half-open [--count N]"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from compat_tests.fuzz.strangers.campaign import campaign
from compat_tests.fuzz.strangers.half_open import half_open


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.fuzz.strangers", description="Before the log-in")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--connections", type=int, default=128, metavar="N", help="at once")
    commands = parser.add_subparsers(dest="command")
    still = commands.add_parser("half-open", help="connections that say no more")
    still.add_argument("--count", type=int, default=5_000, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-strangers-") as temporary:
        if options.command == "half-open":
            return half_open(Path(temporary), options.count)
        return campaign(Path(temporary), options.inputs, options.seed, options.connections)


if __name__ == "__main__":
    sys.exit(main())
