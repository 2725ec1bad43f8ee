"""Standard output: failures that name it, and no character that it cannot take."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any


class OutputFailed(OSError):
    """Standard output cannot be written."""


class _Output(io.FileIO):
    """Standard output, whose failures are told apart from those of other files. `flush` tells what was not heard of the
    last write: argparse does not listen when it prints help.
    """

    _failure: OutputFailed | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._failure = OutputFailed(error.errno, error.strerror)
            raise self._failure from None

    def flush(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def take_output() -> None:
    """For the rest of the process, standard output raises OutputFailed, and shows what cannot be encoded as escapes."""
    given = sys.stdout
    if not isinstance(given, io.TextIOWrapper):
        return
    output = _Output(given.fileno(), "w", closefd=False)
    buffered = output if isinstance(given.buffer, io.RawIOBase) else io.BufferedWriter(output)  # PYTHONUNBUFFERED
    sys.stdout = io.TextIOWrapper(
        buffered,
        encoding=given.encoding,
        errors="backslashreplace",
        line_buffering=given.line_buffering,
        write_through=given.write_through,
    )


def discard_output() -> None:
    """Our output cannot be written: discard the rest, so that the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        sys.stdout.flush()
