"""`python -m compat_tests.runner.fetch`: what tests fetch for the JVM, before they are timed.

Each of them would do so by itself (`compat_tests.harness.jars`); a download is no part of a test's time limit then.
With `--connector` Spark's, whose version is that of the installed PySpark; without it the others, which any Python can.
Says what could not be had, and ends with 1; the tests that want it will say so too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from compat_tests.harness.jars import HERE, ToolMissing, jar_directory


def wanted(*, connector: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """Names, and what fetches."""
    if connector:
        yield "Spark's Kafka connector", _spark
        return
    for pom in sorted((HERE / "poms").glob("*.xml")):
        yield pom.stem, lambda pom=pom: jar_directory(pom.stem, pom)


def _spark() -> object:
    from compat_tests.clients.spark.session import connector_jars

    return connector_jars()


def main(*arguments: str) -> int:
    """Fetch all; returns the exit status."""
    status = 0
    for name, fetch in wanted(connector="--connector" in arguments):
        begun = time.monotonic()
        try:
            fetch()
        except ToolMissing as missing:
            print(f"{name}: {missing}")
            status = 1
        else:
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
