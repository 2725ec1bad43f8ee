"""What was sent, so that it can be sent again: the last steps of an attack in memory, and files of steps.

A file is text, one step a line; `#` begins a comment:

    1 frame 0016 0001 00000001 ffff   a frame on connection 1, whose length is put in front; connections open when used
    1 raw 00000004ff*2 0102           bytes as they are
    1 close | 1 eof | 1 wait          the connection is closed, is half closed, is read until nothing is owed
    1 learnt member id 6d31           here an answer told this value: later steps get what this run's answer tells

Data are hexadecimal words; `0102*5` stands for that many of them, so that 10 MB are a short line.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MEMORY_BYTES = 24 << 20
"""What `Recorder` keeps at most; the oldest steps go first."""
WORD = re.compile(r"([0-9a-fA-F]*)(?:\*(\d+))?")
ACTIONS = ("frame", "raw", "close", "eof", "wait", "learnt")


class Step(NamedTuple):
    """`action` is one of `ACTIONS`, `data` the bytes (of `frame`: without the length), `label` the kind learnt or, of
    a frame, what it is.
    """

    connection: int
    action: str
    data: bytes = b""
    label: str = ""
    at: float = 0.0

    @property
    def on_the_wire(self) -> bytes:
        """What `frame` and `raw` send."""
        return struct.pack(">i", len(self.data)) + self.data if self.action == "frame" else self.data


class Recorder:
    """The last steps."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._steps: deque[Step] = deque()
        self._bytes = 0
        self._memory_bytes = memory_bytes

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self._bytes += len(step.data) + 100
        while self._bytes > self._memory_bytes:
            self._bytes -= len(self._steps.popleft().data) + 100

    def last(self, count: int, byte_limit: int = 4 << 20) -> list[Step]:
        """The last `count` steps that send something, with what was learnt and closed between them."""
        found: list[Step] = []
        size = sends = 0
        for step in reversed(self._steps):
            size += len(step.data)
            sends += step.action in ("frame", "raw")
            if sends > count or (size > byte_limit and found):
                break
            found.append(step)
        return found[::-1]

    def between(self, begin: float, end: float) -> list[Step]:
        """What was sent in this time."""
        return [step for step in self._steps if begin <= step.at <= end and step.action in ("frame", "raw")]


def write(steps: Iterable[Step], comment: str = "") -> str:
    """The text of a file."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for step in steps:
        if step.action == "learnt":
            lines.append(f"{step.connection} learnt {step.label} {step.data.hex()}")
            continue
        words = f"{step.connection} {step.action} {packed(step.data)}".rstrip()
        lines.append(f"{words} # {step.label}" if step.label else words)
    return "\n".join(lines) + "\n"


def packed(data: bytes) -> str:
    """Hexadecimal, with runs of up to four bytes made short."""
    out, at = [], 0
    for run in re.finditer(rb"(.{1,4}?)\1{23,}", data, re.DOTALL):
        out += [data[at : run.start()].hex(), f"{run[1].hex()}*{len(run[0]) // len(run[1])}"]
        at = run.end()
    out.append(data[at:].hex())
    return " ".join(filter(None, out))


def read(text: str) -> Iterator[Step]:
    """The steps of a file. Raises ValueError with the line that is none."""
    for number, line in enumerate(text.splitlines(), 1):
        words, _, comment = line.partition("#")
        parts = words.split()
        if not parts:
            continue
        if len(parts) < 2 or not parts[0].isdigit() or parts[1] not in ACTIONS:
            raise ValueError(f"line {number} is no step: {line[:80]}")
        connection, action = int(parts[0]), parts[1]
        if action == "learnt":
            yield Step(connection, action, bytes.fromhex(parts[-1]), " ".join(parts[2:-1]))
        else:
            yield Step(connection, action, b"".join(_word(word, number) for word in parts[2:]), comment.strip())


def _word(word: str, number: int) -> bytes:
    found = WORD.fullmatch(word)
    if found is None:
        raise ValueError(f"line {number}: {word[:40]} is not hexadecimal")
    return bytes.fromhex(found[1]) * int(found[2] or 1)
