"""The process: as prometheus-client has it, and the build, the loop, memory."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from barnabas.server.metrics.page import Page, labels

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Counted

_PROC = "/proc/self/stat"
_STARTED_FIELD = 19
_RSS_FIELD = 21
_VSIZE_FIELD = 20
_PAGE_BYTES = resource.getpagesize()


def add_process(page: Page, counted: Counted) -> None:
    """The families `process_…`, `python_…`, and those of the loop and of syncs."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.counter("process_cpu_seconds", "CPU time of this process, in seconds.", usage.ru_utime + usage.ru_stime)
    stat = _stat()
    if stat:
        started = _booted_at() + int(stat[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
        page.gauge("process_start_time_seconds", "When it began, in seconds since the epoch.", round(started, 2))
        page.gauge("process_virtual_memory_bytes", "Address space.", int(stat[_VSIZE_FIELD]))
        page.gauge("process_resident_memory_bytes", "Memory that is resident.", int(stat[_RSS_FIELD]) * _PAGE_BYTES)
        page.gauge("process_open_fds", "Open file descriptors.", _open_fds())
        for name, value in _disk_bytes().items():
            page.gauge(
                f"kafka_server_kafkaserver_linux_disk_{name}_bytes", f"Bytes of disk {name}s of this process.", value
            )
    page.gauge(
        "process_max_fds", "How many file descriptors may be open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )
    page.gauge("process_threads", "Python's threads in this process.", threading.active_count())
    lines = page.counters("python_gc_collections", "Garbage collections by generation.")
    for generation, stats in enumerate(gc.get_stats()):
        lines.append(f'python_gc_collections_total{{generation="{generation}"}} {stats["collections"]}')
    page.gauge(
        "barnabas_build_info",
        "Always 1: which version this is, on which Python.",
        1,
        labels(version=counted.version, python=platform.python_version(), implementation=sys.implementation.name),
    )
    loop = counted.loop
    page.counter("barnabas_loop_cpu_seconds", "CPU time of the thread that serves all connections.", loop.cpu_seconds())
    page.histogram(
        "barnabas_loop_delay_seconds",
        "How much later than asked a sleeping task went on: so long everything in the event loop waits.",
        "",
        loop.delays,
    )
    for what, times in counted.syncs.times.items():
        page.histogram(
            "barnabas_sync_duration_seconds",
            "How long it took to make files, directories or file systems safe on the disk (fsync).",
            f'what="{what}"',
            times,
        )
    page.counter("barnabas_sync_failures", "Syncs that the disk has refused.", counted.syncs.failures)


def _stat() -> list[str]:
    """The fields behind the program's name; none where there is no /proc."""
    try:
        with open(_PROC, encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


@cache
def _booted_at() -> float:
    """When the machine was booted, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _open_fds() -> int:
    return len(os.listdir("/proc/self/fd")) - 1


def _disk_bytes() -> dict[str, int]:
    found = {}
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("read_bytes", "write_bytes"):
                    found[name.removesuffix("_bytes")] = int(value)
    except OSError:
        pass
    return found
