"""Ask Apache Kafka again, and write down what it answers: `python -m compat_tests.subjects.access`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from compat_tests.subjects.access.brokers import apache_kafka, apache_kafka_3
from compat_tests.subjects.access.page import PAGE, page
from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD, OPEN_WORLD, Table, store, stored
from compat_tests.subjects.access.trial import cells, earlier, everything
from compat_tests.subjects.access.world import World


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.subjects.access", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page only, from what is stored")
    if not parser.parse_args(arguments).page:
        store(_asked())
    PAGE.write_text(page(stored()), encoding="utf-8")
    return 0


def _asked() -> dict[str, Table]:
    """What Apache Kafka answers, in all worlds."""
    tables: dict[str, Table] = {}
    for which in (CLOSED_WORLD, OPEN_WORLD):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="barnabas-access-") as directory:
            broker, address = apache_kafka(Path(directory), is_open=which == OPEN_WORLD)
            try:
                with closing(World(address)) as world:
                    tables[which] = dict(everything(world, which))
            finally:
                broker.stop()
        print(f"{which}: {cells(tables[which])} cells in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-access-") as directory,
        apache_kafka_3(Path(directory)) as address,
        closing(World(address)) as world,
    ):
        tables[EARLIER_WORLD] = dict(earlier(world, tables[CLOSED_WORLD]))
    print(f"{EARLIER_WORLD}: {cells(tables[EARLIER_WORLD])} cells in {time.monotonic() - began:.0f} s")
    return tables


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
