"""Ask Apache Kafka 4.3.1 again, and write down what it answers: `python -m compat_tests.subjects.access`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.subjects.access.brokers import apache_kafka
from compat_tests.subjects.access.page import PAGE, page
from compat_tests.subjects.access.table import CLOSED_WORLD, OPEN_WORLD, store, stored
from compat_tests.subjects.access.trial import cells, everything
from compat_tests.subjects.access.world import World


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.subjects.access", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page only, from what is stored")
    if not parser.parse_args(arguments).page:
        tables = {}
        for which in (CLOSED_WORLD, OPEN_WORLD):
            with tempfile.TemporaryDirectory(prefix="barnabas-access-") as directory:
                broker, address = apache_kafka(Path(directory), is_open=which == OPEN_WORLD)
                world = None
                try:
                    world = World(address)
                    began = time.monotonic()
                    tables[which] = dict(everything(world, which))
                finally:
                    if world is not None:
                        world.close()
                    broker.stop()
            print(f"{which}: {cells(tables[which])} cells in {time.monotonic() - began:.0f} s")
        store(tables)
    PAGE.write_text(page(stored()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
