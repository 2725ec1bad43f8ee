"""One process of a cluster on this machine: started, waited for, ended.

Its standard input is a pipe that only the supervisor holds, so that it stops when the supervisor is gone, however that
went (`--exit-with-parent`); its standard output is another one, on which it says when it is ready; its standard error
is the supervisor's, for one log. It inherits the lock of the directory. Its session is its own: Ctrl-C reaches the
supervisor alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import trio

_SAID_MOST = 4096
_NOT_INHERITED = ("KAFKA_CREATE_TOPICS",)  # made once, by the supervisor
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from barnabas import main; main()"
"""The command `barnabas` of this very installation, wherever it is imported from."""


class Child:
    """arguments: of the command `barnabas`; at_first: more of them, for its first life. lock: a descriptor that it
    inherits.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        at_first: Sequence[str] = (),
        environ: Mapping[str, str],
        lock: int,
    ) -> None:
        self.name = name
        self._arguments = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path), *arguments]
        self._at_first = list(at_first)
        self._environ = {key: value for key, value in environ.items() if key not in _NOT_INHERITED}
        self._lock = lock
        self._process: trio.Process | None = None
        self._ready = trio.Event()
        self.said = ""
        """What it has said when it was ready, of its present or last life."""

    @property
    def pid(self) -> int:
        """Of its present or last life; 0 if there was none."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def was_ready(self) -> bool:
        """Whether its present or last life came so far."""
        return self._ready.is_set()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and self.is_running

    async def ready(self) -> None:
        """Return when it is ready, in whatever life."""
        await self._ready.wait()

    async def live(self) -> int:
        """One life: start it, and return its exit code; minus the signal that ended it. Cancelled, it is killed.
        Raises OSError if it cannot be started.
        """
        if self._ready.is_set():
            self._ready = trio.Event()
        process = self._process = await trio.lowlevel.open_process(
            [*self._arguments, *self._at_first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
            pass_fds=[self._lock],
        )
        self._at_first = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, process)
                code = await process.wait()
                nursery.cancel_scope.cancel()
            return code
        finally:
            with trio.CancelScope(shield=True):
                if process.poll() is None:
                    process.kill()
                    await process.wait()
                for pipe in (process.stdin, process.stdout):
                    assert pipe is not None
                    await pipe.aclose()

    async def _listen(self, process: trio.Process) -> None:
        """Take what it says: one line when it is ready. More than that is thrown away."""
        assert process.stdout is not None
        said = b""
        while piece := await process.stdout.receive_some(_SAID_MOST):
            if not self._ready.is_set():
                said = (said + piece)[:_SAID_MOST]
                line, newline, _ = said.partition(b"\n")
                if newline:
                    self.said = line.decode("utf-8", "replace")
                    self._ready.set()

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens if it is not running."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def in_words(code: int) -> str:
    """How a process has ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
