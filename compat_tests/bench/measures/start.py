"""How soon a broker answers after the command, and the memory of an idle one."""

from __future__ import annotations

import shutil
import time

from compat_tests.bench.brokers import Server, Side, Subject
from compat_tests.bench.measures.context import Context


def start_up(context: Context, side: Side) -> dict[str, float]:
    """Start on an empty directory (Apache Kafka's is formatted before), wait for an answer to ApiVersions, and look at
    the memory after some idle seconds.
    """
    directory = context.directory / f"start-{side.name}"
    server = Server(side, directory)
    try:
        taken = server.start()
        time.sleep(context.scale.idle_s)
        return {"first_answer_s": taken, "resident_mb": Subject.of(server).resident_mb()}
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
