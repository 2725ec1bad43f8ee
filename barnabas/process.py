"""A broker as a child process, for the test suites of other programs: `barnabas.Broker`.

A process and not a thread, so that a test can kill it and shares no memory, loop or signal with it. What runs in the
caller's process is this file and Python's library; only `create_topic`, `delete_topic` and `reset`, when they are used,
load a small client (`barnabas.server.network.blocking_admin`, and the protocol below it).

The child cannot outlive its parent: its standard input is a pipe that only the parent holds, and it stops when that
ends (`barnabas dev --exit-with-parent`), however the parent went. The port is bound, without listening, for as long as
the `Broker` lives: it stays ours while the broker is down, and no client's outgoing connection can take it meanwhile.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from barnabas.server.network.blocking_client import BlockingClient
    from barnabas.server.security.client_access import ClientAccess

__all__ = ["Broker", "BrokerError"]

SECURITY = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
ADMINISTRATOR, ADMINISTRATOR_PASSWORD = "admin", "admin-secret"
USERS = {"alice": "alice-secret"}
LOG_BYTES = 64 * 1024
LOG_LINES_IN_ERRORS = 30
STOP_S = 10.0
# Variables meant for the program under test that would only slow the broker down or make it fail.
_NOT_INHERITED = ("PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONWARNINGS")
_PREFIX = b"bootstrap="


class BrokerError(Exception):
    """The broker did not start, or ended by itself; the message holds the end of its log."""

    __module__ = "barnabas"  # in tracebacks, by the name that it is imported by


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the broker, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class Broker:
    """A broker on a free port of this machine, ready to be connected to inside of a `with` statement.

    settings: Apache Kafka's own, by their dotted names, such as `{"num.partitions": 3}`; groups do not wait for
    members before their first rebalance unless `group.initial.rebalance.delay.ms` says so. security: `SSL`,
    `SASL_PLAINTEXT` or `SASL_SSL`, for which an authority, certificates and users are made on the spot; `access` says
    how they come in. users: passwords by name; `{"alice": "alice-secret"}` if it is left out. data: a directory to
    keep; without it the data lies in a temporary directory that goes with the broker. topics: names, or a dictionary of
    names and numbers of partitions, of topics that are there when it has started. port: to listen on, 0 for a free one.
    log_level: of the broker's log (`debug`, `info`, `warn`, …). timeout_s: how long a start may take.

    Not for use by several threads at once. Starting takes some tenths of a second.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        data: str | os.PathLike[str] | None = None,
        topics: Iterable[str] | Mapping[str, int] = (),
        port: int = 0,
        log_level: str = "warn",
        timeout_s: float = 30.0,
    ) -> None:
        self._settings = {key: _text(value) for key, value in (settings or {}).items()}
        for key in ("log.dirs", "log.dir"):
            if key in self._settings:
                raise ValueError(f"{key} is not among the settings of barnabas.Broker: say data=DIRECTORY")
        if security is None and users is not None:
            raise ValueError("users of barnabas.Broker have no effect without security")
        if security not in (None, *SECURITY):
            raise ValueError(f"security of barnabas.Broker is one of {', '.join(SECURITY)}, not {security!r}")
        if security is not None and "listeners" in self._settings:
            raise ValueError("security of barnabas.Broker makes its own listener: leave listeners out of the settings")
        self._security = security
        self._users = {ADMINISTRATOR: ADMINISTRATOR_PASSWORD, **(USERS if users is None else users)}
        if isinstance(topics, str):
            raise TypeError(f"topics of barnabas.Broker are a list or a dictionary: [{topics!r}]")
        self._topics = [f"{name}:{n}" for name, n in topics.items()] if isinstance(topics, Mapping) else list(topics)
        self._data = None if data is None else Path(data).absolute()
        self._port = port
        self._log_level = log_level
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._bootstrap: str | None = None
        self._home: Path | None = None
        self._reserved: socket.socket | None = None
        self._clean_up: weakref.finalize[[Path, int], Broker] | None = None

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.running else "not running"
        return f"<barnabas.Broker {self._bootstrap or 'never started'}, {state}>"

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; the same after a restart. Raises BrokerError before the first start."""
        if self._bootstrap is None:
            raise BrokerError("the broker was not started: use `with barnabas.Broker() as broker:`")
        return self._bootstrap

    @property
    def running(self) -> bool:
        """Is the process there?"""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if it is not running."""
        if self._process is None or not self.running:
            raise BrokerError("the broker is not running")
        return self._process.pid

    @property
    def data(self) -> Path:
        """The directory of the partitions. Raises BrokerError before the first start."""
        if self._data is not None:
            return self._data
        if self._home is None:
            raise BrokerError("the broker was not started and has no data yet")
        return self._home / "data"

    @property
    def log(self) -> str:
        """What the broker has logged since its first start: the last 64 KiB. Empty when all went well."""
        if self._home is None:
            return ""
        with (self._home / "broker.log").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            return file.read().decode("utf-8", "replace")

    def access(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> ClientAccess:
        """What clients must know of a broker with `security`: `access("alice").librdkafka()`, `.java()`,
        `.kafka_python()`, `.aiokafka()`. user: one of `users`, the first one if it is left out, or `admin`, the super
        user. mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises BrokerError before the first start
        and after the end, ValueError for what is not there.
        """
        from barnabas.server.security.client_access import MECHANISMS, ClientAccess

        if self._security is None:
            raise ValueError("the broker has no security: say barnabas.Broker(security=…)")
        name = next((each for each in self._users if each != ADMINISTRATOR), ADMINISTRATOR) if user is None else user
        if name not in self._users:
            raise ValueError(f"the broker has no user {name!r}, but {', '.join(self._users)}")
        if mechanism not in MECHANISMS:
            raise ValueError(f"the broker has no mechanism {mechanism!r}, but {', '.join(MECHANISMS)}")
        bootstrap, files = self.bootstrap, str(self._files)
        return ClientAccess(bootstrap, self._security, files, name, self._users[name], mechanism)

    @property
    def _files(self) -> Path:
        """The directory of certificates."""
        if self._home is None:
            raise BrokerError("the broker is closed, and its certificates are gone")
        return self._home / "security"

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, on the data and the port it had before; returns when clients are answered.

        Raises BrokerError if it runs already, refuses its settings, fails, or is not ready in time.
        """
        if sys.platform == "win32":
            raise BrokerError("the broker does not run on Windows itself; run the tests in WSL")
        if self.running:
            raise BrokerError("the broker is running already")
        self._forget()
        try:
            self._start()
        except BaseException:
            self._reap(kill=True)
            raise
        return self

    def stop(self) -> None:
        """Stop it in order, as SIGTERM does; its data stay. Nothing happens if it was stopped or killed before.

        Raises BrokerError if it had ended by itself, fails while it stops, or had to be killed after 10 s.
        """
        ended = self._reap(kill=False)
        if ended is not None:
            raise self._error(f"the broker {ended}")

    def kill(self) -> None:
        """End it at once, as `kill -9` or a crash does; its data stay, and the next start recovers them."""
        self._reap(kill=True)

    def restart(self) -> None:
        """Stop it (if it was not stopped or killed) and start it again, with the same data on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it for good; removes its data if they were temporary. Raises BrokerError if it had ended by itself."""
        try:
            self.stop()
        finally:
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None
            if self._clean_up is not None:
                self._clean_up()
            self._home = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerError as ended:
            if error is None:
                raise
            # What went wrong in the block is probably a consequence; both should be read.
            error.add_note(str(ended))

    # -- topics and groups -------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        """Create a topic; clients can use it at once. partitions: None for the broker's `num.partitions`. settings: of
        the topic, by Apache Kafka's names. Raises BrokerError if the broker refuses.
        """
        texts = {key: _text(value) for key, value in (settings or {}).items()}
        count = -1 if partitions is None else partitions
        self._ask(lambda admin, client: admin.create_topic(client, name, count, texts))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, unless it is gone already. Raises BrokerError if the broker refuses."""
        self._ask(lambda admin, client: admin.delete_topics(client, [name]))

    def reset(self) -> None:
        """Delete all topics and groups, so that the next test finds a broker as new, in milliseconds.

        Members of groups that are left over are put out; raises BrokerError if they come back, as consumers do that are
        not closed. Settings that were changed while it runs, and ids of transactional producers, stay.
        """
        self._ask(lambda admin, client: admin.reset(client))

    def _ask(self, act: Callable[[ModuleType, BlockingClient], None]) -> None:
        """`act(blocking_admin, client)`; what the broker refuses is a BrokerError."""
        from barnabas.server.network import blocking_admin
        from barnabas.server.network.blocking_client import BlockingClient, NoAnswer

        credentials, tls = None, None
        if self._security is not None:
            administrator = self.access(ADMINISTRATOR)
            credentials, tls = administrator.credentials, administrator.ssl_context()
        try:
            with BlockingClient(self.bootstrap, timeout_s=self._timeout_s, tls=tls, credentials=credentials) as client:
                act(blocking_admin, client)
        except (blocking_admin.Refused, NoAnswer) as error:
            raise BrokerError(str(error)) from None

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        home = self._prepare()
        command = [sys.executable, "-P", str(Path(__file__).with_name("__main__.py")), "dev"]
        command += [
            "--port",
            str(self._port),
            "--data",
            str(self.data),
            "--log-level",
            self._log_level,
            "--exit-with-parent",
        ]
        if self._data is None:
            command.append(str(home))
        if self._security is not None:
            command += ["--security", self._security, "--security-files", str(self._files)]
            for name, password in self._users.items():
                command += ["--user", f"{name}:{password}"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        for topic in self._topics:
            command += ["--topic", topic]
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        with (home / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                process_group=0,  # Ctrl-C is for the tests; they stop the broker when they have ended
            )
        self._bootstrap = self._wait_until_ready(self._process)

    def _prepare(self) -> Path:
        """The directory for the log and for temporary data; the port."""
        if self._home is None:
            home = self._home = Path(tempfile.mkdtemp(prefix="barnabas-"))
            (home / "broker.log").touch()
            self._clean_up = weakref.finalize(self, _remove, home, os.getpid())
        if self._reserved is None and "listeners" not in self._settings:
            self._reserved = _reserve(self._port)
            self._port = self._reserved.getsockname()[1]
        return self._home

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str:
        """The address that the broker announces. Raises BrokerError."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        said = b""
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise self._error(f"the broker was not ready after {self._timeout_s:g} s")
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                code = process.wait()
                reason = "refuses its settings" if code == 2 else f"did not start ({_ended_with(code)})"
                raise self._error(f"the broker {reason}")
            said += piece
        line = said.partition(b"\n")[0]
        if not line.startswith(_PREFIX):
            raise self._error(f"the broker announced {line!r} instead of its address")
        return line.removeprefix(_PREFIX).decode()

    def _reap(self, *, kill: bool) -> str | None:
        """End the process; None, or how it ended if that was not in order. Killing always is."""
        process = self._process
        if process is None:
            return None
        code = process.poll()
        problem = None if code is None else f"had ended by itself ({_ended_with(code)})"
        if kill:
            process.kill()
            process.wait()
            problem = None
        elif code is None:
            process.terminate()
            try:
                if code := process.wait(STOP_S):
                    problem = f"ended with {_ended_with(code)}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                problem = f"did not stop within {STOP_S:g} s and was killed"
        self._forget()
        return problem

    def _forget(self) -> None:
        """Let go of a process that has ended."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def _error(self, text: str) -> BrokerError:
        lines = self.log.splitlines()[-LOG_LINES_IN_ERRORS:]
        return BrokerError(
            "\n".join([f"{text}; the end of its log:", *lines]) if lines else f"{text}; it logged nothing"
        )


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ended_with(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _reserve(port: int) -> socket.socket:
    """A socket bound to `port` of this machine, or to a free one, that lets the broker listen there."""
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


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of the process that made it
        shutil.rmtree(directory, ignore_errors=True)
