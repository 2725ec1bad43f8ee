"""The parent watch: a broker that another program started stops when that program ends, in whatever way.

Standard input is a pipe whose other end only that program holds; it ends with the program, `kill -9`
included. Not the kernel's "signal on the parent's death": that one ends the child when the parent's *thread* ends, and
needs code between fork and exec.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading

AGAIN_S = 0.2
"""Between two signals that are to be two."""
PATIENCE_S = 30.0
"""How long an orderly stop may take once the parent has ended."""


class ParentWatch:
    """Watches standard input from a thread and ends this process as two SIGTERMs do: a broker of a cluster hands
    nothing over then, as the others go as well. `directory` is removed at the end if the parent ended without stopping
    us first: otherwise the parent removes it.

    The code that handles SIGTERM calls `ended` before the process exits.
    """

    def __init__(self, directory: str | None, stdin: int = 0) -> None:
        self._directory = directory
        self._stdin = stdin
        self._parent_gone = False
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="parent watch", daemon=True).start()

    def ended(self) -> None:
        """The broker has ended; clean up."""
        self._over.set()
        if self._parent_gone and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _watch(self) -> None:
        while os.read(self._stdin, 4096):
            pass
        if self._over.is_set():
            return
        self._parent_gone = True
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._over.wait(AGAIN_S):
            os.kill(os.getpid(), signal.SIGTERM)
        if not self._over.wait(PATIENCE_S):
            self.ended()
            os._exit(1)
