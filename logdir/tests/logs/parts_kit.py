"""A log's state over a disk in memory, for tests of single parts: nothing above the part is there."""

from __future__ import annotations

import errno
import threading

from barnabas.logdir import LogConfig, StorageError
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.files.open_files import Pool
from barnabas.logdir.logs.flusher import Flusher
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.segment import Segment
from barnabas.logdir.tests.kit import NOW, batch

HERE = "/t-0"
KNOWN_AS = object()
"""Stands for the `PartitionLog`, which there is none of."""


class Owner:
    """The log directory, which notes what it hears."""

    def __init__(self) -> None:
        self.pool = Pool(100)
        self.heard: list[str] = []

    def rolled(self, log: object) -> None:
        assert log is KNOWN_AS
        self.heard.append("rolled")

    def remove_later(self, paths: list[str], due_ms: int) -> None:
        self.heard += paths

    def recovery_point_fell(self, log: object) -> None:
        assert log is KNOWN_AS
        self.heard.append("fell")

    def storage_failed(self, error: StorageError) -> None:
        self.heard.append("failed")

    def jitter(self) -> float:
        return 0.0


def empty_log(disk: Disk, owner: Owner, **config: object) -> LogState:
    disk.make_dir(HERE)
    lock = threading.RLock()
    first = Segment.new(disk, HERE, 0, owner.pool, lock, now_ms=NOW)
    first.make_files()
    state = LogState(
        disk,
        HERE,
        LogConfig(**config),  # type: ignore[arg-type]
        owner,
        lock,
        segments=[first],
        producers=Producers(),
        snapshots=[],
        epochs=LeaderEpochs(),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        topic_id=None,
    )
    state.known_as = KNOWN_AS
    return state


class Rig:
    """Everything that a write needs, and nothing that appends."""

    def __init__(self, **config: object) -> None:
        self.disk = MemoryDisk()
        self.owner = Owner()
        self.state = empty_log(self.disk, self.owner, **config)
        self.flusher = Flusher(self.state)
        self.repair = TailRepair(self.state, self.flusher)
        self.limits = RollLimits(self.state, 0)
        self.writer = Writer(self.state, self.repair, self.limits)

    def roller(self) -> Roller:
        return Roller(self.state, self.repair, self.limits, self.writer)

    def fill(self, *segments: str) -> None:
        """A segment for each text, a record for each letter; the last one stays active."""
        for number, letters in enumerate(segments):
            if number:
                self.roller().roll(NOW)
            for letter in letters:
                self.stage(letter)
                self.writer.write()

    def fail(self, call: str, where: str, code: int = errno.EMFILE, after: int = 0) -> None:
        """This call of the disk fails from now on for paths with `where` in them, but for the first `after` times."""
        left = after

        def on_call(name: str, path: str) -> None:
            nonlocal left
            if name == call and where in path:
                left -= 1
                if left < 0:
                    raise OSError(code, "said the test", path)

        self.disk.on_call = on_call  # type: ignore[assignment]

    def works(self) -> None:
        """The disk does all it is asked to again."""
        self.disk.on_call = None

    def names(self, suffix: str = "") -> list[str]:
        return sorted(entry.name for entry in self.disk.list(HERE) if entry.name.endswith(suffix))

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.state.segments]

    def stage(self, value: str) -> int:
        """As an appender does; the bytes of the batch."""
        data = memoryview(batch(value))
        state, writer = self.state, self.writer
        data[:8] = state.next_offset.to_bytes(8, "big")
        writer.staged.append(data)
        writer.batches.append((state.next_offset, len(data), NOW))
        writer.position += len(data)
        state.next_offset += 1
        return len(data)
