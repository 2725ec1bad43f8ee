"""A program with members of groups, or other clients, which do as they are asked: it reads orders and writes answers.

An order is a line `serial TAB command TAB member TAB argument...`, its answer `serial TAB OK TAB result...` or
`serial TAB ERR TAB number TAB text`, in any order.
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from compat_tests.harness.client import Refused

ANSWER_S = 120


class Members:
    """See the module. command: the program. log: gets what it says."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self._serials = itertools.count()
        self._answers: dict[str, queue.Queue[list[str]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def new_name(self) -> str:
        """For another member."""
        return f"m{next(self._serials)}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            serial, *rest = line.rstrip("\n").split("\t")
            answers = self._answers.pop(serial, None)
            if answers is not None:
                answers.put(rest)
        for answers in list(self._answers.values()):
            answers.put(["ERR", "-1", "the program has ended"])

    def ask(self, command: str, member: str, *given: str) -> list[str]:
        """The words of the answer. Raises Refused."""
        answers: queue.Queue[list[str]] = queue.Queue()
        with self._lock:
            serial = str(next(self._serials))
            self._answers[serial] = answers
            assert self.process.stdin is not None
            self.process.stdin.write("\t".join((serial, command, member, *given)) + "\n")
            self.process.stdin.flush()
        try:
            kind, *words = answers.get(timeout=ANSWER_S)
        except queue.Empty:
            said = self.log.read_text()[-2000:]
            raise AssertionError(f"{command} of {member}: no answer within {ANSWER_S} s\n{said}") from None
        if kind == "ERR":
            raise Refused(int(words[0]), words[1])
        return words

    def stop(self) -> None:
        """End it by force: its members are gone without a word."""
        self.process.kill()
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
