"""A Spark driver whose executor is a process of its own: copies one topic into another.

    python -m compat_tests.clients.spark.copying DIRECTORY FROM TO     # options of source and sink on stdin, as JSON

The options, and with them the log-in, reach the executor from here. Says how many executors there were.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compat_tests.clients.spark.session import new_session


def main(directory: str, source: str, sink: str) -> None:
    """Copy, and say who did."""
    options = json.load(sys.stdin)
    spark = new_session(Path(directory), "local-cluster[1,1,512]")
    frame = spark.read.format("kafka").options(**options, subscribe=source).load()
    frame.select("key", "value").write.format("kafka").options(**options, topic=sink).save()
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    others = len(tracker.getExecutorInfos()) - 1  # the driver is one of them
    spark.stop()
    print(f"{others} executor{'' if others == 1 else 's'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
