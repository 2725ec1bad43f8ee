"""How long syncs take: a `Disk` that times them. They run in threads mostly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from barnabas.logdir import Disk
from barnabas.server.metrics.histogram import Histogram


class SyncTimes:
    """By what is synced: a `file`, a `directory`, a whole `filesystem`. failures: of all."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.times = {what: Histogram() for what in ("file", "directory", "filesystem")}
        self.failures = 0

    def timed(self, what: str, sync: Callable[[], None]) -> None:
        """Call `sync`. Raises what it raises."""
        begun_ns = self._clock()
        try:
            sync()
        except OSError:
            with self._lock:
                self.failures += 1
            raise
        with self._lock:
            self.times[what].add(self._clock() - begun_ns)


def timed_disk(disk: Disk, times: SyncTimes) -> Disk:
    """`disk` with times of its syncs; all else is its own."""

    class TimedDisk(type(disk)):  # type: ignore[misc]
        """The class of `disk`, which may be one of a test's: its attributes are taken over."""

        def __init__(self) -> None:
            self.__dict__.update(getattr(disk, "__dict__", {}))

        def sync(self, fd: int) -> None:
            times.timed("file", lambda: disk.sync(fd))

        def sync_dir(self, path: str) -> None:
            times.timed("directory", lambda: disk.sync_dir(path))

        def sync_all(self, path: str) -> None:
            times.timed("filesystem", lambda: disk.sync_all(path))

    made: Disk = TimedDisk()
    return made
