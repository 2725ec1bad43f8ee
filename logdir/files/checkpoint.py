"""Apache Kafka's small text files of offsets, replaced as a whole.

    0                      format version
    2                      how many entries follow
    events 0 4711          topic, partition, offset
    events 1 17

There is one each for recovery points, high watermarks and log starts per log directory.

`leader-epoch-checkpoint` of a partition has the same first two lines and `<epoch> <start offset>` as entries. The
file is written beside the old one, synced, renamed over it, and the directory synced, so that a crash leaves one or
the other. Offsets count records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.logdir.files.disk import Disk, read_file, replace_file
from barnabas.logdir.files.errors import CorruptFile

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"

VERSION = 0

Offsets = Mapping[tuple[str, int], int]


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join([f"{VERSION}\n{len(entries)}\n", *(f"{entry}\n" for entry in entries)]).encode()


def decode_lines(data: bytes, name: str) -> list[list[str]]:
    """The entries, split at blanks. Raises `CorruptFile` for another version or count."""
    if not data:  # Apache Kafka makes the file before there is anything to write
        return []
    try:
        lines = data.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CorruptFile(f"{name} does not start with a version and a count") from None
    if version != VERSION:
        raise CorruptFile(f"{name} has version {version}, known is {VERSION}")
    entries = [line.split() for line in lines[2:] if line]
    if count != len(entries):
        raise CorruptFile(f"{name} announces {count} entries and has {len(entries)}")
    return entries


def encode_offsets(offsets: Offsets) -> bytes:
    return encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes, name: str) -> dict[tuple[str, int], int]:
    """Raises `CorruptFile`."""
    offsets = {}
    for entry in decode_lines(data, name):
        try:
            topic, partition, offset = entry
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFile(f"{name} has the entry {' '.join(entry)!r}, not topic, partition and offset") from None
    return offsets


def read_offsets(disk: Disk, directory: str, name: str) -> dict[tuple[str, int], int]:
    """Empty when there is no such file. Raises `CorruptFile`, OSError."""
    try:
        data = read_file(disk, f"{directory}/{name}")
    except FileNotFoundError:
        return {}
    return decode_offsets(data, name)


def write_offsets(disk: Disk, directory: str, name: str, offsets: Offsets) -> None:
    """Atomic and synced; may be called from a thread. Raises OSError."""
    replace_file(disk, directory, name, encode_offsets(offsets))
