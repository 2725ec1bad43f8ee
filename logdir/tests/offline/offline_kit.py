"""A partition directory with something of everything, for the tests of `barnabas.logdir.offline`."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, PartitionLog
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, open_dir

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)


def fill(log: PartitionLog, rounds: int = 40, *, leave_open: bool = True) -> list[Record]:
    """Plain, compressed, keyed, null and transactional records, headers, times out of order; what was written, markers
    included. With `leave_open` the last transaction stays open.
    """
    written: list[Record] = []
    sequences = {1: 0, 2: 0}

    def put(buf: bytearray, records: list[Record], number: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        base = log.append(buf, leader_epoch=number // 15, now_ms=NOW + number, origin=origin).base_offset
        log.write()
        written.extend(record._replace(offset=base + at) for at, record in enumerate(records))

    for number in range(rounds):
        records = [
            Record(
                timestamp=NOW + number * 100 - (number * 37 + at * 11) % 250,
                key=None if at % 3 == 0 else b"key-%d" % (number % 7),
                value=None if at == 1 else b"value %d " % number * (number % 5 + at),
                headers=(("h", b"1"), ("näh", None)) if at == 2 else (),
            )
            for at in range(number % 4 + 1)
        ]
        put(build_batch(records, codec=number % 5), records, number)
        producer = 1 + number % 2
        if number % 3 == 0:
            buf = build_batch(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=True,
            )
            sequences[producer] += len(records)
            put(buf, records, number)
        if number % 3 == 1 or (number == rounds - 1 and not leave_open):
            for ending in (1, 2):
                time = NOW + number * 100
                commit = number // 3 % 2 == ending % 2
                buf = build_control_batch(
                    producer_id=ending, producer_epoch=0, commit=commit, coordinator_epoch=3, timestamp=time
                )
                key, value = b"\0\0\0" + bytes([commit]), b"\0\0\0\0\0\x03"
                put(buf, [Record(timestamp=time, key=key, value=value)], number, AppendOrigin.COORDINATOR)
    return written


def make_dir(path: Path, *, clean: bool = True, rounds: int = 40, leave_open: bool = True) -> list[Record]:
    """A log directory at `path` with the partition `t-0`, stopped cleanly or not; what its log holds."""
    log_dir = open_dir(None, str(path), CONFIG)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    written = fill(log, rounds, leave_open=leave_open)
    stop(log_dir, clean)
    return written


def stop(log_dir: LogDir, clean: bool) -> None:
    for log in log_dir.logs.values():
        log.flush()
    ends = {key: log.log_end_offset for key, log in log_dir.logs.items()}
    if clean:
        log_dir.close(ends)
    else:
        log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
        log_dir.checkpoints.write(log_dir.checkpoints.high_watermarks(ends))
        log_dir.unlock()


def copy(source: Path, target: Path) -> Path:
    """The same directory once more, to be damaged."""
    shutil.copytree(source, target)
    return target
