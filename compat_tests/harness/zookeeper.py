"""Real ZooKeeper servers as child processes: one alone, or an ensemble of three.

The jars come from ZOOKEEPER_CLASSPATH (a Java class path) or out of the jars that PySpark ships (ZooKeeper 3.9), so
nothing is fetched. A server is ready when the four-letter word `srvr` is answered: `ruok` answers earlier than requests
are served. Each is ended, paused and continued by its own pid, and can be started again on the same port and data.

    with zookeeper(directory) as zk:
        zk.connect                      # "127.0.0.1:41234"
        zk.pause(); zk.resume(); zk.kill(); zk.start()
        zk.expire("/brokers/ids/1")     # ends the session that owns an ephemeral node

Times are seconds unless a name says otherwise. Sessions may be as short as 500 ms here (`minSessionTimeout`). Writes
are not forced to disk unless asked for (`fsync=True`): killing a process loses nothing that a page cache keeps.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compat_tests.harness.jars import SHORT_LIVED, ToolMissing, java
from compat_tests.harness.ports import free_ports
from compat_tests.harness.processes import pause

START_TIMEOUT_S = 400
STOP_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 30
# A server that starts takes a connection now and then that it never answers: then another one is made.
SERVING_TIMEOUT_S = 3
JAVA_OPTIONS = (
    "-Xmx128m",
    *SHORT_LIVED,
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=1024",
)
# What the server needs of PySpark's jars. With all of them on the class path it does not run.
NEEDED_JARS = (
    "zookeeper-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "slf4j-api-*.jar",
    "commons-io-*.jar",
    "audience-annotations-*.jar",
)
_CLOSE_SESSION = -11
_CONNECT = struct.Struct("!iqiqi16s?")  # protocol version, last zxid, time-out, session id, password, read-only


class ZooKeeperFailed(Exception):
    """The server did not start; the message holds what it printed."""


def zookeeper_classpath() -> str:
    """The Java class path of a ZooKeeper server. Raises ToolMissing."""
    given = os.environ.get("ZOOKEEPER_CLASSPATH")
    if given:
        return given
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissing("no ZooKeeper found: set ZOOKEEPER_CLASSPATH, or install pyspark, whose jars hold one")
    jars = Path(next(iter(spec.submodule_search_locations))) / "jars"
    found = [str(jar) for pattern in NEEDED_JARS for jar in sorted(jars.glob(pattern))]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in found):
        raise ToolMissing(f"no zookeeper-*.jar in {jars}: set ZOOKEEPER_CLASSPATH")
    return os.pathsep.join(found)


class ZooKeeper:
    """One server. Attributes: `connect` ("host:port"), `process` (None until started), `directory`, `log`."""

    def __init__(
        self,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        prefix: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        fsync: bool = False,
        number: int = 0,
    ) -> None:
        self.directory = directory
        self.host = host
        self.port = port or free_ports(1)[0]
        self.connect = f"{host}:{self.port}"
        self.log = directory / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        data = directory / "data"
        data.mkdir(exist_ok=True)
        if number:
            (data / "myid").write_text(f"{number}\n")
        settings = {
            "tickTime": "500",
            "initLimit": "40",
            "syncLimit": "20",
            "minSessionTimeout": "500",
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": host,
            "4lw.commands.whitelist": "srvr,mntr,cons,wchs",
            **(config or {}),
        }
        self._file = directory / "zoo.cfg"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [
            *prefix,
            *java(),
            *JAVA_OPTIONS,
            f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}",
            *java_options,
            "-cp",
            zookeeper_classpath(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._file),
        ]

    def start(self, *, wait: bool = True) -> None:
        """Start (again) on the same port and data. Raises ZooKeeperFailed."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self, timeout: float = START_TIMEOUT_S) -> None:
        """Return when `srvr` is answered by a server that serves. Raises ZooKeeperFailed."""
        deadline = time.monotonic() + timeout
        while not self.serving():
            if self.process is not None and self.process.poll() is not None:
                raise ZooKeeperFailed(f"exit status {self.process.returncode}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise ZooKeeperFailed(f"not serving on {self.connect} after {timeout} s:\n{self._said()}")
            time.sleep(0.05)

    def serving(self) -> bool:
        """Whether requests are answered now."""
        try:
            return self.ask(b"srvr", SERVING_TIMEOUT_S).startswith("Zookeeper version")
        except OSError:
            return False

    def ask(self, word: bytes, timeout: float = ANSWER_TIMEOUT_S) -> str:
        """The answer to a four-letter word. Raises OSError."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(word)
            said = b""
            while part := connection.recv(65536):
                said += part
        return said.decode(errors="replace")

    def mode(self) -> str:
        """standalone, leader or follower; '' while it serves nobody."""
        for line in self.ask(b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def pause(self) -> None:
        """SIGSTOP."""
        pause(self._process().pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._process().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process().kill()
        self._process().wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM (SIGKILL if that does not help), and wait. Nothing happens if it does not run."""
        process = self.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def expire(self, path: str) -> None:
        """End the session that owns the ephemeral node `path`, as if it had timed out. Needs kazoo."""
        expire_session(self.host, self.port, owner_of(self.connect, path))

    def _process(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "not started"
        return self.process

    def _said(self) -> str:
        return self.log.read_bytes()[-4000:].decode(errors="replace") if self.log.exists() else ""


def start_zookeeper(
    directory: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    prefix: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
    fsync: bool = False,
) -> ZooKeeper:
    """Start a server alone and wait until it serves; the caller stops it.

    host: the address to bind and connect to. port: 0 chooses a free one. prefix: words before the java command (such
    as `ip netns exec NAME`). config: more lines of zoo.cfg. Raises ToolMissing, ZooKeeperFailed.
    """
    server = ZooKeeper(
        directory, host=host, port=port, prefix=prefix, config=config, java_options=java_options, fsync=fsync
    )
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server


@contextmanager
def zookeeper(
    directory: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    prefix: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
    fsync: bool = False,
) -> Iterator[ZooKeeper]:
    """A server alone for the length of a block; arguments as in start_zookeeper."""
    server = start_zookeeper(
        directory, host=host, port=port, prefix=prefix, config=config, java_options=java_options, fsync=fsync
    )
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory / "data", ignore_errors=True)


class Ensemble:
    """Several servers that vote. `connect` names them all; `servers` are single ones."""

    def __init__(self, servers: Sequence[ZooKeeper]) -> None:
        self.servers = list(servers)
        self.connect = ",".join(server.connect for server in servers)

    def leader(self) -> ZooKeeper:
        """The server that leads. Raises ZooKeeperFailed while there is none."""
        for server in self.servers:
            try:
                if server.mode() == "leader":
                    return server
            except OSError:
                continue
        raise ZooKeeperFailed("no leader")

    def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            server.stop()


@contextmanager
def ensemble(
    directory: Path, size: int = 3, *, host: str = "127.0.0.1", config: Mapping[str, str] | None = None
) -> Iterator[Ensemble]:
    """`size` servers that form a quorum, for the length of a block."""
    ports = free_ports(size * 3)
    votes = {
        f"server.{number}": f"{host}:{ports[size + number - 1]}:{ports[2 * size + number - 1]}"
        for number in range(1, size + 1)
    }
    with ExitStack() as stack:
        servers = []
        for number in range(1, size + 1):
            server = ZooKeeper(
                directory / str(number),
                host=host,
                port=ports[number - 1],
                config={**votes, **(config or {})},
                number=number,
            )
            stack.callback(server.stop)
            server.start(wait=False)
            servers.append(server)
        for server in servers:
            server.wait_until_serving()
        yield Ensemble(servers)


def owner_of(connect: str, path: str) -> int:
    """Id of the session that owns an ephemeral node. Needs kazoo; raises its NoNodeError."""
    from kazoo.client import KazooClient

    client = KazooClient(connect, timeout=60)
    client.start(timeout=60)
    try:
        return int(client.get(path)[1].ephemeralOwner)
    finally:
        client.stop()
        client.close()


def expire_session(host: str, port: int, session_id: int, timeout: float = 60) -> None:
    """Take a session over by its id and close it: for its owner it has expired. Raises OSError.

    A session's password is derived from its id by the server (Java's Random seeded with the id and a constant), so
    the id is enough, also for the session of another process. Its owner connects again meanwhile, and may take the
    session back before it is closed: then once more.
    """
    for _ in range(20):
        try:
            _close_session(host, port, session_id, timeout)
            return
        except ConnectionError:
            time.sleep(0.05)
    raise ConnectionError(f"session 0x{session_id:x} cannot be taken over")


def _close_session(host: str, port: int, session_id: int, timeout: float) -> None:
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.settimeout(timeout)
        _send(connection, _CONNECT.pack(0, 0, int(timeout * 1000), session_id, 16, session_password(session_id), False))
        _, negotiated, _ = struct.unpack_from("!iiq", _receive(connection))
        if negotiated <= 0:
            return  # it is over already
        _send(connection, struct.pack("!ii", 1, _CLOSE_SESSION))
        _receive(connection)


def session_password(session_id: int) -> bytes:
    """The 16 bytes that a ZooKeeper server gives out with a session id."""
    mask = (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += ((state >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(struct.pack("!i", len(content)) + content)


def _receive(connection: socket.socket) -> bytes:
    (size,) = struct.unpack("!i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed by the server")
        parts += part
    return parts
