"""What a log takes of the memory: a broker has thousands of them, most of them at rest."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from barnabas.logdir import LogConfig
from barnabas.logdir.files import memory_disk
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import TOPIC_ID, open_dir, put

LOGS = 300
BYTES_MAX = 3000
"""For one. CPython 3.11 takes 2,600 for an empty log, as much for one that was opened again, 200 more once it is
written to.
"""


@pytest.mark.parametrize("what", ["made", "written", "opened"])
def test_a_log_is_small(what: str) -> None:
    disk, config = MemoryDisk(), LogConfig()

    def make() -> None:
        for number in range(LOGS):
            log = log_dir.open_or_create("t", number, TOPIC_ID, config)
            if what != "made":
                put(log, "a")

    log_dir = open_dir(disk, config=config, max_open_files=10)
    put(log_dir.open_or_create("first", 0, TOPIC_ID, config), "what all share")
    if what == "opened":
        make()
        log_dir.close()
    gc.collect()
    tracemalloc.start()
    try:
        if what == "opened":
            log_dir = open_dir(disk, config=config, max_open_files=10)
        else:
            make()
        gc.collect()
        # The files themselves lie in memory here.
        files = tracemalloc.Filter(False, memory_disk.__file__)
        found = tracemalloc.take_snapshot().filter_traces((files,)).statistics("filename")
    finally:
        tracemalloc.stop()
    assert len(log_dir.logs) == LOGS + 1
    size = sum(each.size for each in found) / LOGS
    assert size < BYTES_MAX, "\n".join(f"{each.size / LOGS:.0f} {each.traceback}" for each in found[:20])
