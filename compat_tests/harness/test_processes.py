"""A process that is paused does nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from compat_tests.harness.processes import pause

BUSY = """
import itertools, os, threading
def count(fd):
    for number in itertools.count():
        os.pwrite(fd, number.to_bytes(8, "big"), 0)
for _ in range(4):
    threading.Thread(target=count, args=(1,)).start()
"""


def test_no_thread_runs_when_it_is_paused() -> None:
    file = os.memfd_create("count")
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=file) as process:
        try:
            while not os.pread(file, 8, 0):
                assert process.poll() is None
            for _ in range(5):
                pause(process.pid)
                seen = os.pread(file, 8, 0)
                assert [os.pread(file, 8, 0) for _ in range(1000)] == [seen] * 1000
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()
    os.close(file)
