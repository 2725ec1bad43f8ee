"""Carries out a compaction: in a process of its own, or, for tests and other disks, through `offload`.

Both take a plan and return the finished groups of segments one by one, each to be put in place before the next is made,
as in Apache Kafka: only one group's space is needed on the disk at a time. They request permission for the bytes read
and written, so a throttle may delay them, and an order to stop is obeyed within a mebibyte.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.compiled import Choice
from barnabas.logdir import CleanedSegment, CompactionAborted, CompactionLimits, CompactionPlan, CompactionStats, Disk
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.wording import in_words

log = logging.getLogger("barnabas.cleaner")

Spend = Callable[[int], Awaitable[None]]
"""Called with the bytes read or written: waits as long as the throttle demands. Raises CompactionAborted to abort."""
PutInPlace = Callable[[CleanedSegment], Awaitable[None]]
"""A group is finished. Raises CompactionAborted, `StorageError`."""
Done = tuple[int, CompactionStats]
"""The new cleaner checkpoint of the log, and what was done."""

END_S = 1.0
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from barnabas.server.storage.cleaner_worker import main; main()"
)


class WorkerFailed(Exception):
    """A bug: the text is the traceback in the worker."""


class CannotStart(Exception):
    """The process cannot be started now, for lack of resources."""


class WorkerDied(Exception):
    """The process ended without an answer."""


class Compactor(Protocol):
    """Compacts one log at a time."""

    async def compact(
        self, disk: Disk, plan: CompactionPlan, limits: CompactionLimits, spend: Spend, put_in_place: PutInPlace
    ) -> Done:
        """Carry out `plan`; nothing of it runs after this returns or raises.

        Raises CompactionAborted (the log was truncated or deleted, or a callback raised it), KafkaError (its records
        cannot be read), OSError (the disk), `CannotStart`, `WorkerFailed`, `WorkerDied`, and what `put_in_place`
        raises.
        """

    async def rest(self) -> None:
        """No work for a while, or ever: release memory and process."""


class OffloadCompactor:
    """Compacts in this process. A group of segments is one step: the throttle and an order to stop take effect
    between two of them.
    """

    def __init__(self, offload: Offload) -> None:
        self._offload = offload

    async def compact(
        self, disk: Disk, plan: CompactionPlan, limits: CompactionLimits, spend: Spend, put_in_place: PutInPlace
    ) -> Done:
        from barnabas.logdir.compaction.run import CompactionRun

        spent: list[int] = []
        run = CompactionRun(disk, plan, limits, spent.append)
        groups: Iterator[CleanedSegment] = iter(run)
        while (cleaned := await self._offload(next, groups, None)) is not None:
            await spend(sum(spent))
            spent.clear()
            await put_in_place(cleaned)
        await spend(sum(spent))
        return run.end_offset, run.stats

    async def rest(self) -> None:
        await trio.lowlevel.checkpoint()


class ProcessCompactor:
    """Compacts in a child process (cleaner_worker.py), which is started when there is work and ended when there is
    none. It gets no descriptor of ours but two pipes, and ends with this process. It runs compiled functions where this
    process does, and says at DEBUG whether it has them.
    """

    def __init__(self) -> None:
        self._process: trio.Process | None = None
        self._received = bytearray()

    @property
    def pid(self) -> int | None:
        """The child's pid, None while there is none."""
        return None if self._process is None else self._process.pid

    async def compact(
        self, disk: Disk, plan: CompactionPlan, limits: CompactionLimits, spend: Spend, put_in_place: PutInPlace
    ) -> Done:
        stopped: CompactionAborted | None = None
        at_rest = False
        try:
            await self._send("compact", plan, limits)
            while True:
                kind, *values = await self._receive()
                at_rest = kind in ("done", "failed")
                if kind == "runs":
                    self._tell(*values)
                    continue
                if kind == "done":
                    end_offset, stats = values
                    return end_offset, stats
                if kind == "failed":
                    raise stopped or _failure(*values)
                try:
                    await (spend if kind == "spent" else put_in_place)(values[0])
                except CompactionAborted as error:
                    stopped = error
                await self._send("go" if stopped is None else "stop")
        finally:
            if not at_rest:
                # It is busy, or not running any more.
                await self._end()

    async def rest(self) -> None:
        await self._end()

    async def _started(self) -> trio.Process:
        if self._process is None:
            self._received.clear()
            command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
            try:
                self._process = await trio.lowlevel.open_process(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    process_group=0,  # a terminal's Ctrl-C is for the broker
                )
            except OSError as error:  # not an error of the log's disk
                raise CannotStart(f"the process that compacts cannot be started: {in_words(error)}") from error
        return self._process

    def _tell(self, choice: Choice) -> None:
        what = f"with barnabas-native {choice.version}" if choice.version else f"in Python ({choice.why_not})"
        log.debug("the process that compacts (pid %s) runs %s", self.pid, what)

    async def _send(self, *message: Any) -> None:
        from barnabas.server.storage.cleaner_worker import encode

        process = await self._started()
        assert process.stdin is not None
        try:
            await process.stdin.send_all(encode(message))
        except trio.BrokenResourceError:
            raise await self._death() from None

    async def _receive(self) -> tuple[Any, ...]:
        from barnabas.server.storage.cleaner_worker import HEAD, decode

        process = await self._started()
        assert process.stdout is not None
        while True:
            if len(self._received) >= HEAD.size:
                end = HEAD.size + HEAD.unpack_from(self._received)[0]
                if len(self._received) >= end:
                    data = bytes(self._received[HEAD.size : end])
                    del self._received[:end]
                    return decode(data)
            more = await process.stdout.receive_some(1 << 16)
            if not more:
                raise await self._death()
            self._received += more

    async def _death(self) -> WorkerDied:
        process = self._process
        assert process is not None
        with trio.move_on_after(END_S):
            await process.wait()
        status = process.returncode
        what = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            what = f"was ended by signal {-status}"
        return WorkerDied(f"the process that compacts (pid {process.pid}) {what}")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()


def _failure(kind: str, text: str, errno: int) -> Exception:
    """Interpret the worker's last message."""
    from barnabas.server.storage.cleaner_worker import ABORTED, CORRUPT, STORAGE

    if kind == ABORTED:
        return CompactionAborted(text)
    if kind == CORRUPT:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
    if kind == STORAGE:
        return OSError(errno, text)
    return WorkerFailed(text)
