"""A server of ours as a child process of whoever runs tests: started, waited for, ended, and its log. Behind
`barnabas.Broker` and `barnabas.Cluster`; imports nothing of the broker.

The child cannot outlive its parent: its standard input is a pipe that only the parent holds, and it stops when that
ends, however the parent went.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KIT_CLIENT_ID = "barnabas-kit"
"""Of our own requests, which faults spare."""
LOG_BYTES = 64 * 1024
LOG_LINES_IN_ERRORS = 30
# Variables meant for the program under test that would only slow the broker down or make it fail.
_NOT_INHERITED = ("PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONWARNINGS")


class BrokerError(Exception):
    """The broker did not start, or ended by itself; the message holds the end of its log."""

    __module__ = "barnabas"  # in tracebacks, by the name that it is imported by


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the broker, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class Child:
    """One process, through its lives. what: the broker, for instance, in messages. log: the file that it writes to."""

    def __init__(self, what: str, log: Path) -> None:
        self._what = what
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._announcements: dict[str, str] = {}
        self._was_asked = False  # to end

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if it is not running."""
        if self._process is None or not self.running:
            raise BrokerError(f"{self._what} is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has logged since its first start: the last 64 KiB."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LOG_BYTES))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def spawn(self, arguments: Sequence[str]) -> None:
        """Start the command `barnabas` with these arguments. Raises BrokerError if it runs already."""
        if sys.platform == "win32":
            raise BrokerError("the broker does not run on Windows itself; run the tests in WSL")
        if self.running:
            raise BrokerError(f"{self._what} is running already")
        self._forget()
        command = [sys.executable, "-P", str(Path(__file__).with_name("__main__.py")), *arguments]
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                process_group=0,  # Ctrl-C is for the tests; they stop the broker when they have ended
            )

    def wait_until_ready(self, announcement: str, timeout_s: float, *, last: str | None = None) -> str:
        """What it says after `announcement`, in its first line. It is ended if it says something else, or nothing in
        time. last: how its last line begins, if it says more; `said` has them. Raises BrokerError.
        """
        process = self._process
        assert process is not None
        try:
            lines = self._announced(process, announcement, last or announcement, timeout_s)
        except BaseException:
            self.reap(kill=True, within_s=0)
            raise
        self._announcements = {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}
        return lines[0].removeprefix(announcement)

    def said(self, name: str) -> str | None:
        """The value in its line `name=value`; None without one."""
        return self._announcements.get(name)

    def _announced(self, process: subprocess.Popen[bytes], first: str, last: str, timeout_s: float) -> list[str]:
        """Its lines, once there is one that begins with `last`. The first one begins with `first`."""
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        said = b""
        while True:
            lines = said.decode("utf-8", "replace").split("\n")[:-1]
            if lines and not lines[0].startswith(first):
                raise self.error(f"announced {lines[0]!r} instead of {first!r}")
            if any(line.startswith(last) for line in lines):
                return lines
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise self.error(f"was not ready after {timeout_s:g} s")
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                code = process.wait()
                raise self.error("refuses its settings" if code == 2 else f"did not start ({ended_with(code)})")
            said += piece

    def control_url(self) -> str:
        """Where its control channel is. Raises BrokerError if it is not running, or has none."""
        url = self.said("control") if self.running else None
        if url is None:
            raise BrokerError(f"{self._what} is not running")
        return url

    def reap(self, *, kill: bool, within_s: float) -> str | None:
        """End the process; None, or how it ended if that was not in order. Killing always is."""
        process = self._process
        if process is None:
            return None
        code = process.poll()
        problem = (
            None if code is None or (self._was_asked and not code) else f"had ended by itself ({ended_with(code)})"
        )
        if kill:
            process.kill()
            process.wait()
            problem = None
        elif code is None:
            process.terminate()
            try:
                if code := process.wait(within_s):
                    problem = f"ended with {ended_with(code)}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                problem = f"did not stop within {within_s:g} s and was killed"
        self._forget()
        return problem

    def terminate(self) -> None:
        """Ask it to end; `reap` waits for it."""
        if self._process is not None and self._process.poll() is None:
            self._was_asked = True
            self._process.terminate()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """No thread of it runs in the block. Raises BrokerError if it is not running.

        Should the caller's process die in the block, the kernel ends this one: it is alone in its process group, and
        one that nobody could continue gets SIGHUP.
        """
        process = self._process
        if process is None or not self.running:
            raise BrokerError(f"{self._what} is not running")
        process.send_signal(signal.SIGSTOP)
        try:
            # The signal is on its way when it is sent; what it does is known when the process is reported stopped.
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                raise self.error(f"had ended by itself ({ended_with(process.returncode)})")
            yield
        finally:
            process.send_signal(signal.SIGCONT)  # of one that has ended it does nothing

    def stop(self, within_s: float) -> None:
        """End it in order. Raises BrokerError if it had ended by itself, fails while it stops, or had to be killed."""
        ended = self.reap(kill=False, within_s=within_s)
        if ended is not None:
            raise self.error(ended)

    def error(self, text: str) -> BrokerError:
        """The error with the end of the log."""
        lines = self.log.splitlines()[-LOG_LINES_IN_ERRORS:]
        said = f"{self._what} {text}"
        return BrokerError(
            "\n".join([f"{said}; the end of its log:", *lines]) if lines else f"{said}; it logged nothing"
        )

    def _forget(self) -> None:
        """Let go of a process that has ended."""
        process, self._process, self._was_asked = self._process, None, False
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


class Home:
    """A temporary directory that goes with its owner, or with the program."""

    def __init__(self, owner: object) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="barnabas-"))
        self.remove = weakref.finalize(owner, _remove, self.path, os.getpid())


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of the process that made it
        shutil.rmtree(directory, ignore_errors=True)


def reserve(port: int) -> socket.socket:
    """A socket bound to `port` of this machine, or to a free one, that lets the broker listen there: the port stays
    ours while the broker is down. Raises BrokerError.
    """
    sock = socket.socket()
    try:
        if port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        # Only now: asked for any free port, the kernel could otherwise choose one that another `Broker` has reserved.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        sock.close()
        raise BrokerError(f"port {port} cannot be used: {error.strerror or error}") from None
    return sock


def close_after(error: BaseException | None, close: Callable[[], None]) -> None:
    """The end of a `with` block of which `error` came. Raises BrokerError as `close` does, unless there is an error:
    what went wrong in the block is probably a consequence, and both should be read.
    """
    try:
        close()
    except BrokerError as ended:
        if error is None:
            raise
        error.add_note(str(ended))


def ended_with(code: int) -> str:
    """How a process has ended."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def text_of(value: str | int | float | bool) -> str:
    """A value of a setting as its text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def topic_texts(topics: Any, what: str) -> list[str]:
    """Topics of a list or a dictionary, as `--topic` takes them. Raises TypeError."""
    if isinstance(topics, str):
        raise TypeError(f"topics of {what} are a list or a dictionary: [{topics!r}]")
    return [f"{name}:{n}" for name, n in topics.items()] if hasattr(topics, "items") else list(topics)
