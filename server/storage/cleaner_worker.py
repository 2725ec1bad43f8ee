"""The process that compacts: reads closed segments, writes `.cleaned` files, and talks to the broker over two pipes.

It imports only the log code, neither trio nor the rest of the broker. A message is a length (4 bytes, big-endian) and
a pickled tuple; both ends are ours.

| from the broker | meaning |
| --- | --- |
| ("compact", plan, limits) | one log; the next one may come when this one is done |
| ("go",) | the answer to "spent" and "cleaned": continue |
| ("stop",) | the answer to "spent": abort this log, remove what was written |

| to the broker | meaning |
| --- | --- |
| ("runs", choice) | the first one: whether it has compiled functions (`barnabas.kproto.compiled`) |
| ("spent", bytes) | bytes read or written; waits for an answer, which comes when the throttle allows |
| ("cleaned", segment) | a group is written and synced; waits until the broker has put it in place |
| ("done", end offset, stats) | the whole plan is carried out |
| ("failed", kind, text, errno) | it is not; kind is one of `FAILURES` |

Standard input is the parent watch too: a thread reads it, and its end means that the broker has ended, `kill -9`
included; then this process exits immediately. Otherwise it could write into files of the next broker.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from barnabas.kproto import compiled
from barnabas.kproto.errors import KafkaError
from barnabas.logdir import CompactionAborted, CompactionLimits, CompactionPlan, Disk

HEAD: Final = struct.Struct(">I")
ABORTED, CORRUPT, STORAGE, BROKEN = "aborted", "corrupt", "storage", "broken"
FAILURES: Final = (ABORTED, CORRUPT, STORAGE, BROKEN)
"""The log was truncated or deleted · its records cannot be read · the disk failed · a bug."""
NICENESS: Final = 5
"""The priority: where cores are short, it gets a third of the broker's share."""
SPEND_BYTES: Final = 1 << 20
"""Bytes per request for permission: some tens of round trips a second."""


def encode(message: tuple[Any, ...]) -> bytes:
    """A message as it goes over a pipe."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEAD.pack(len(data)) + data


def decode(data: bytes) -> tuple[Any, ...]:
    """Decode what follows the length."""
    message: tuple[Any, ...] = pickle.loads(data)
    return message


class Worker:
    """Serves one broker over the descriptors `source` and `target`."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._inbox: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._due = 0

    def serve(self) -> None:
        """Compact what the broker asks for until it closes the pipe, which ends the process."""
        Thread(target=self._listen, name="parent watch", daemon=True).start()
        self._send("runs", compiled.CHOICE)
        while True:
            _, plan, limits = self._inbox.get()
            self._due = 0
            self._send(*compact(plan, limits, self._spend, self._hand_over))

    def _listen(self) -> None:
        with os.fdopen(self._source, "rb", closefd=False) as pipe:
            while head := pipe.read(HEAD.size):
                self._inbox.put(decode(pipe.read(HEAD.unpack(head)[0])))
        os._exit(0)

    def _send(self, *message: Any) -> None:
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._target, data) :]

    def _spend(self, size: int) -> None:
        self._due += size
        if self._due >= SPEND_BYTES:
            due, self._due = self._due, 0
            self._ask("spent", due)

    def _hand_over(self, cleaned: object) -> None:
        self._ask("cleaned", cleaned)

    def _ask(self, *message: Any) -> None:
        self._send(*message)
        if self._inbox.get()[0] == "stop":
            raise CompactionAborted("aborted by the broker")


def compact(
    plan: CompactionPlan,
    limits: CompactionLimits,
    spend: Callable[[int], None],
    hand_over: Callable[[object], None],
) -> tuple[Any, ...]:
    """Carry out a plan; returns the last message about it."""
    from barnabas.logdir.compaction.run import CompactionRun  # the broker imports this module too, for the messages

    try:
        run = CompactionRun(Disk(), plan, limits, spend)
        for cleaned in run:
            hand_over(cleaned)
    except CompactionAborted as error:
        return "failed", ABORTED, str(error), 0
    except KafkaError as error:
        return "failed", CORRUPT, error.message or error.code.name, 0
    except OSError as error:
        return "failed", STORAGE, str(error), error.errno or 0
    except Exception:
        return "failed", BROKEN, traceback.format_exc(), 0
    return "done", run.end_offset, run.stats


def main() -> None:
    """Serve the broker that started this process."""
    os.nice(NICENESS)
    gc.disable()  # a compaction makes many objects and no cycles: a sixth of its time
    target = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no message
    Worker(0, target).serve()
