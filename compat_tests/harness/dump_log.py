"""Apache Kafka's DumpLogSegments over whole log directories: every batch, record and index entry that our broker left.

`complaints(directories)` hands all files of all partitions to the tool, in two runs: one walks through all records and
compares every index entry with the log, the other one does the checks that Apache Kafka does at its start. It returns
what the tool found wrong, a line each.

What it says of sound logs is left out: offsets that are missing where the cleaner has been (its checkpoint says where),
the first offset of a segment "following -1", index entries of format 0, which has no timestamps.

The suite does this at its end for all that its brokers left under pytest's temporary directory, newest first, up to
`--dump-log-mib`; see `conftest.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import SHORT_LIVED, classpath, java

TOOL = "org.apache.kafka.tools.DumpLogSegments"
TIMEOUT_S = 900
TIME_INDEX_WORK = 3_000_000_000
"""For every entry of a time index the tool walks through the log from its beginning: entries times bytes of the log,
of all that are compared so. About 20 s. The smallest come first; of the rest the tool sees the log and the other index,
and of their time indexes what Apache Kafka looks at when it starts.
"""
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
MOST_NAMES = 100_000
"""Bytes of file names in one argument; the system takes 128 KiB."""
CHECKPOINT = "recovery-point-offset-checkpoint"
BROKERS_LOGS = ("barnabas.log", "broker.log")
"""What a broker's process says is gathered beside its log directory. Directories that tests make, and damage, have no
such file.
"""
OF_KAFKA = "server.properties"
"""Stands beside a directory in which Apache Kafka has written: its cleaner leaves time index entries that its tool
finds wrong.
"""
HARMLESS = ("SLF4J:", "log4j:", "Dumping ", "StatusLogger")
WRONG = re.compile(
    r"Exception|ERROR|WARN|[Mm]ismatch|corrupt|not found|Error|invalid bytes|out of order|Ignoring unknown"
)
_PARTITION = re.compile(r".+-[0-9]+(\.[0-9a-f]+-future)?")
_FOLLOWED = re.compile(r"\s*(-?[0-9]+) is followed by (-?[0-9]+)")
_HEADING = re.compile(r"Non-consecutive offsets in (.+)")


def log_directories(root: Path) -> list[Path]:
    """The log directories below `root` of our brokers that ran as processes, the one written last first."""
    found = {
        path.parent
        for path in root.rglob(CHECKPOINT)
        if any((path.parent.parent / name).exists() for name in BROKERS_LOGS)
        and not (path.parent.parent / OF_KAFKA).exists()
    }
    return sorted(found, key=lambda path: (path / CHECKPOINT).stat().st_mtime, reverse=True)


def within(directories: Iterable[Path], limit_bytes: int) -> list[Path]:
    """The first of these directories, as long as their logs together have no more than `limit_bytes`."""
    chosen = []
    for directory in directories:
        limit_bytes -= sum(path.stat().st_size for path in files_of(directory) if path.suffix == ".log")
        if limit_bytes >= 0:
            chosen.append(directory)
    return chosen


def files_of(directory: Path) -> list[Path]:
    """What the tool can read in the partitions of a log directory. Files on their way in or out are left out."""
    return [
        path
        for partition in sorted(directory.iterdir())
        if partition.is_dir() and _PARTITION.fullmatch(partition.name) and partition.name != "__cluster_metadata-0"
        for path in sorted(partition.iterdir())
        if path.suffix in SUFFIXES
    ]


def complaints(directories: Sequence[Path]) -> list[str]:
    """What the tool finds wrong in these log directories. Raises ToolMissing."""
    if not directories:
        return []
    root = Path(os.path.commonpath(directories))
    files = [path.relative_to(root) for directory in directories for path in files_of(directory)]
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    cleaned = {partition for directory in directories for partition in _cleaned(directory)}
    said = [
        *run(affordable(files, root), "--deep-iteration", "--verify-index-only", directory=root),
        *run(indexes, "--index-sanity-check", directory=root),
    ]
    return wrong(said, cleaned)


def affordable(files: Sequence[Path], root: Path) -> list[Path]:
    """The files without the time indexes that would take too long."""
    work = {}
    for path in files:
        if path.suffix == ".timeindex":
            segment = (root / path).with_suffix(".log")
            entries = (root / path).stat().st_size // 12
            work[path] = entries * segment.stat().st_size if segment.exists() else 0
    left = TIME_INDEX_WORK
    for path in sorted(work, key=lambda path: work[path]):
        left -= work[path]
        if left >= 0:
            del work[path]
    return [path for path in files if path not in work]


def run(files: Sequence[Path], *options: str, directory: Path | None = None, expect: int | None = None) -> list[str]:
    """The tool's lines about these files (relative to `directory`). Raises AssertionError unless it ends with `expect`
    (None: any status; a line says what it was, unless it was 0).
    """
    lines: list[str] = []
    start = [*java(), *SHORT_LIVED, "-Xmx256m", "-cp", classpath(KAFKA_JARS), TOOL]
    for some in _portions(list(map(str, files))):
        done = subprocess.run(
            [*start, *options, "--files", ",".join(some)],
            cwd=directory,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        assert expect in (None, done.returncode), said[-3000:]
        lines += said.splitlines()
        if done.returncode:
            lines.append(f"Exception: the tool ended with {done.returncode}")
    return lines


def wrong(lines: Iterable[str], cleaned: Collection[Path] = ()) -> list[str]:
    """The complaints among the tool's lines. cleaned: directories of partitions in which offsets may be missing."""
    found = []
    heading, may_miss = "", False
    for line in lines:
        match = _HEADING.match(line)
        if match:
            heading, may_miss = match[1], Path(match[1]).parent in cleaned
            continue
        pair = _FOLLOWED.match(line)
        if pair:
            first, second = int(pair[1]), int(pair[2])
            if first >= second or (first >= 0 and not may_miss):
                found.append(f"{heading}: {first} is followed by {second}")
        elif WRONG.search(line) and not line.startswith(HARMLESS) and "| offset:" not in line and "payload" not in line:
            found.append(line)
    return found


def _cleaned(directory: Path) -> set[Path]:
    """Directories of the partitions that the cleaner has been in."""
    try:
        lines = (directory / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return set()
    return {directory.resolve() / "{}-{}".format(*line.split()) for line in lines}


def _portions(names: list[str]) -> Iterable[list[str]]:
    portion: list[str] = []
    size = 0
    for name in names:
        if portion and size + len(name) > MOST_NAMES:
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += len(name) + 1
    if portion:
        yield portion
