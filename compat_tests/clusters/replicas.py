"""Replicas compared: the bytes of a partition's segment files, one after another, must be the same on every broker.

Where segments begin may differ between replicas (each rolls for itself), so the files are joined; a replica that has
deleted old segments is compared from where it begins.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from compat_tests.clusters.harness import Cluster

BATCH_HEAD = struct.Struct(">qii")
"""Base offset, length of what follows, leader epoch."""


def differences(cluster: Cluster, topic: str, timeout: float = 120) -> list[str]:
    """Return how the replicas of a topic differ; waits a while for followers to catch up. Load must have ended."""
    deadline = time.monotonic() + timeout
    while True:
        found = _differences(cluster, topic)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _differences(cluster: Cluster, topic: str) -> list[str]:
    found = []
    for index, replicas in cluster.tree.assignment(topic).items():
        directories = {number: cluster.nodes[number].data / f"{topic}-{index}" for number in replicas}
        missing = [number for number, path in directories.items() if not path.is_dir()]
        if missing:
            found.append(f"{topic}-{index}: no replica on {missing}")
            continue
        contents = {number: content(path) for number, path in directories.items()}
        first = max(start for start, _ in contents.values())
        tails = {number: tail(start, data, first) for number, (start, data) in contents.items()}
        reference = replicas[0]
        for number in replicas[1:]:
            if tails[number] != tails[reference]:
                found.append(f"{topic}-{index}: {where(tails, reference, number)}")
    return found


def content(directory: Path) -> tuple[int, bytes]:
    """Return the first offset of a partition directory and all its batches."""
    files = sorted(directory.glob("*.log"))
    return int(files[0].stem) if files else 0, b"".join(file.read_bytes() for file in files)


def batches(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield base offset, leader epoch, position and size of each batch."""
    position = 0
    while position + BATCH_HEAD.size <= len(data):
        offset, length, epoch = BATCH_HEAD.unpack_from(data, position)
        size = length + 12
        yield offset, epoch, position, size
        position += size


def tail(start: int, data: bytes, first: int) -> bytes:
    """Return the batches from offset *first* on."""
    if start >= first:
        return data
    for offset, _, position, _ in batches(data):
        if offset >= first:
            return data[position:]
    return b""


def where(tails: dict[int, bytes], one: int, other: int) -> str:
    """Say at which batch two replicas part."""
    pairs = zip(batches(tails[one]), batches(tails[other]), strict=False)
    for (offset, epoch, position, size), (offset2, epoch2, position2, size2) in pairs:
        if tails[one][position : position + size] != tails[other][position2 : position2 + size2]:
            return (
                f"brokers {one} and {other} differ from offset {offset}/{offset2} on"
                f" (leader epochs {epoch}/{epoch2}, sizes {size}/{size2})"
            )
    return f"broker {one} has {len(tails[one])} bytes, broker {other} {len(tails[other])}"


def broken(directory: Path) -> Sequence[str]:
    """Return what is wrong with the batches of a partition directory: they must join without gap or overlap."""
    wrong = []
    expected: int | None = None
    _, data = content(directory)
    for offset, _, position, _ in batches(data):
        if expected is not None and offset != expected:
            wrong.append(f"{directory.name}: batch at {offset} follows one that ends at {expected - 1}")
        # The last offset's delta stands 23 bytes into a batch.
        (delta,) = struct.unpack_from(">i", data, position + 23)
        expected = offset + delta + 1
    return wrong


def epochs(directory: Path) -> str:
    """Return the leader epochs a replica remembers, as its file says: `epoch first-offset` lines.

    Those without a record are left out: only who was leader or follower then knows of them.
    """
    file = directory / "leader-epoch-checkpoint"
    if not file.exists():
        return ""
    last = max((offset for offset, _, _, _ in batches(content(directory)[1])), default=-1)
    return "\n".join(line for line in file.read_text().splitlines()[2:] if int(line.split()[1]) <= last)
