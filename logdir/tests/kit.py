"""Small things that the tests share."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kproto.records import BatchHeader, Record, build_batch, iter_headers
from barnabas.logdir import LogConfig, LogDir, PartitionLog
from barnabas.logdir.files.disk import Disk

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
PATH = "/data"


class Clock:
    """Wall time that a test sets."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def batch(
    *values: bytes | str,
    timestamp: int = NOW,
    keys: Sequence[bytes | None] = (),
    producer: tuple[int, int, int] | None = None,
    **options: object,
) -> bytearray:
    """One batch of the values; `producer` is (id, epoch, base sequence)."""
    records = [
        Record(
            timestamp=timestamp,
            key=keys[number] if keys else None,
            value=value.encode() if isinstance(value, str) else value,
        )
        for number, value in enumerate(values)
    ]
    if producer is not None:
        options.update(producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    return build_batch(records, **options)  # type: ignore[arg-type]


def open_dir(
    disk: Disk | None, path: str = PATH, config: LogConfig | None = None, clock: Clock | None = None, **options: object
) -> LogDir:
    """A log directory, opened and loaded."""
    log_dir = LogDir(path, wall_ms=clock or Clock(), disk=disk, random=lambda: 0.0, **options)  # type: ignore[arg-type]
    log_dir.open()
    log_dir.check_identity(cluster_id="test", node_id=1)
    log_dir.load(lambda topic: config or LogConfig())
    return log_dir


def put(log: PartitionLog, *values: bytes | str, leader_epoch: int = 0, now_ms: int = NOW, **options: object) -> int:
    """Append one batch and write it; its base offset."""
    info = log.append(batch(*values, **options), leader_epoch=leader_epoch, now_ms=now_ms)  # type: ignore[arg-type]
    log.write()
    return info.base_offset


def stored(log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[BatchHeader, bytes]]:
    """All batches from `start` on, read as a consumer reads: slice after slice."""
    offset = log.log_start_offset if start is None else start
    batches: list[tuple[BatchHeader, bytes]] = []
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes, upper_offset=log.log_end_offset, min_one_batch=True)
        if found is None:
            break
        data = found.read()
        assert len(data) == len(found)
        seen = False
        for position, header in iter_headers(data):
            if header.last_offset >= offset:
                batches.append((header, data[position : position + header.size]))
                offset = header.next_offset
                seen = True
        assert seen, f"a slice at {offset} without a whole batch"
    return batches
