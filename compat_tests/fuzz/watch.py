"""What a broker shows without being asked: its log, whether it lives, how much memory it has, how busy its loop was.

`Log` reads what was appended since the last look and tells errors by their kind: numbers, ids and what clients sent
are taken out of the message, and of a traceback the exception and its last place remain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

EXCUSED = re.compile(
    r"coordinators: record \d+ of __(consumer_offsets|transaction_state|share_group_state) .* is skipped"
)
"""Whoever calls himself `__admin_client` may write to internal topics, as with Apache Kafka: also what is no group."""
HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARN|ERROR|FATAL) +(.*)")
TRACEBACK = "Traceback (most recent call last):"
PLACE = re.compile(r'^\s*(?:\|\s*)*File "([^"]+)", line (\d+), in (\S+)')
RAISED = re.compile(
    r"^\s*(?:\|\s*)*((?:[\w]+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Violation|Refused|Failed|Group)?)(?::|$)"
)
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|-?\d+(?:\.\d+)?(?::\d+)?")
CLIENT = re.compile(r"( vN)? of client \S+ at \S+| vN")
ENTRY_MAX = 20_000


class Entry(NamedTuple):
    """An error of the log. `text` is what stands there, cut off at 20,000 characters."""

    kind: str
    text: str


class Log:
    """The errors of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = ""
        self._open: list[str] = []

    def skip(self) -> None:
        """Leave out what is there."""
        self._at = self._path.stat().st_size if self._path.exists() else 0

    def errors(self, *, all_of_it: bool = False) -> Iterator[Entry]:
        """What came since the last call. An entry is complete when the next begins, or with `all_of_it`."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(8 << 20)
        except FileNotFoundError:
            return
        self._at += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if all_of_it and self._rest:
            lines.append(self._rest)
            self._rest = ""
        for line in lines:
            if HEAD.match(line):
                yield from self._entry()
                self._open = [line]
            elif len(self._open) < 400:
                self._open.append(line)
        if all_of_it or (not data and self._open):
            yield from self._entry()
            self._open = []

    def _entry(self) -> Iterator[Entry]:
        lines = self._open
        if not lines:
            return
        head = HEAD.match(lines[0])
        has_traceback = any(TRACEBACK in line for line in lines)
        if not has_traceback and (head is None or head[1] not in ("ERROR", "FATAL")):
            return
        text = "\n".join(lines)
        if EXCUSED.search(lines[0]):
            return
        yield Entry(kind_of(lines), text[:ENTRY_MAX])


def kind_of(lines: list[str]) -> str:
    """What two entries have in common when they are of one kind."""
    head = HEAD.match(lines[0])
    message = head[2] if head else lines[0].strip()
    message = VARIABLE.sub("N", QUOTED.sub("'...'", message))[:160]
    places = [found for line in lines if (found := PLACE.match(line))]
    raised = [found[1] for line in lines if not line.startswith(" " * 4) and (found := RAISED.match(line))]
    if not places:
        return message
    # The innermost place that is written by hand: codecs are generated for each version.
    ours = [found for found in places if not found[1].startswith("<")] or places
    file, _, function = ours[-1].groups()
    message = CLIENT.sub("", message)
    return f"{message} / {raised[-1] if raised else '?'} in {Path(file).name}:{function}"


def memory_bytes(pid: int) -> int:
    """Resident memory; 0 when there is no such process."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def descriptors(pid: int) -> int:
    """Open descriptors; 0 when there is no such process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


class Busy(NamedTuple):
    """Seconds of a process's main thread, which is its loop: on a core, and ready but without one."""

    ran: float
    waited: float


def busy(pid: int | str) -> Busy:
    """Since it began. Where the kernel keeps no such figures, all that passed counts as used: (-1, 0)."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return Busy(-1.0, 0.0)
    return Busy(int(ran) / 1e9, int(waited) / 1e9)
