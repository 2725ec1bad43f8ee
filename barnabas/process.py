"""A broker as a child process, for the test suites of other programs: `barnabas.Broker`.

A process and not a thread, so that a test can kill it and shares no memory, loop or signal with it. What runs in the
caller's process is this file and Python's library; only `create_topic`, `delete_topic` and `reset`, when they are used,
load a small client (`barnabas.server.network.blocking_admin`, and the protocol below it), and `topics` another one.

The child cannot outlive its parent: its standard input is a pipe that only the parent holds, and it stops when that
ends (`barnabas dev --exit-with-parent`), however the parent went. The port is bound, without listening, for as long as
the `Broker` lives: it stays ours while the broker is down, and no client's outgoing connection can take it meanwhile.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.child import KIT_CLIENT_ID, BrokerError, Child, Home, close_after, reserve, text_of, topic_texts
from barnabas.security import ADMINISTRATOR, Security

if TYPE_CHECKING:
    from barnabas.clock import Clock, Snapshot
    from barnabas.control import Control
    from barnabas.faults import Faults
    from barnabas.server.network.blocking_client import BlockingClient
    from barnabas.server.security.client_access import ClientAccess
    from barnabas.topics import Topics

__all__ = ["Broker", "BrokerError"]

STOP_S = 30.0
SNAPSHOTS_SUFFIX = ".barnabas-snapshots"
"""Of the directory beside the data: `barnabas.server.storage.snapshots`."""


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
        timeout_s: float = 60.0,
    ) -> None:
        self._settings = {key: text_of(value) for key, value in (settings or {}).items()}
        for key in ("log.dirs", "log.dir"):
            if key in self._settings:
                raise ValueError(f"{key} is not among the settings of barnabas.Broker: say data=DIRECTORY")
        self._security = Security(security, users, "barnabas.Broker")
        if self._security and "listeners" in self._settings:
            raise ValueError("security of barnabas.Broker makes its own listener: leave listeners out of the settings")
        self._topics = topic_texts(topics, "barnabas.Broker")
        self._data = None if data is None else Path(data).absolute()
        self._port = port
        self._log_level = log_level
        self._timeout_s = timeout_s
        self._bootstrap: str | None = None
        self._home: Home | None = None
        self._child: Child | None = None
        self._reserved: socket.socket | None = None
        self._faults: Faults | None = None

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
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if it is not running."""
        if self._child is None:
            raise BrokerError("the broker is not running")
        return self._child.pid

    @property
    def data(self) -> Path:
        """The directory of the partitions. Raises BrokerError before the first start."""
        if self._data is not None:
            return self._data
        if self._home is None:
            raise BrokerError("the broker was not started and has no data yet")
        return self._home.path / "data"

    @property
    def log(self) -> str:
        """What the broker has logged since its first start: the last 64 KiB. Empty when all went well."""
        return "" if self._child is None else self._child.log

    @property
    def control_url(self) -> str:
        """Where its control channel is, the JSON API of docs/testing.md; another one after each start. Raises
        BrokerError if it is not running.
        """
        if self._child is None:
            raise BrokerError("the broker is not running")
        return self._child.control_url()

    @property
    def faults(self) -> Faults:
        """What goes wrong on purpose: `with broker.faults.produce(topic="t", error="NOT_LEADER_OR_FOLLOWER"): …`."""
        if self._faults is None:
            from barnabas.faults import Faults

            self._faults = Faults(self._control)
        return self._faults

    @property
    def clock(self) -> Clock:
        """What time it is for the broker: `broker.clock.advance("7d")`."""
        from barnabas.clock import Clock

        return Clock(self._control)

    @property
    def _control(self) -> Control:
        from barnabas.control import Control

        return Control(lambda: self.control_url)

    @property
    def topics(self) -> Topics:
        """What was written: `broker.topics["t"].records()`."""
        from barnabas.topics import Topics

        def access() -> ClientAccess | None:
            return self.access(ADMINISTRATOR) if self._security else None

        return Topics(lambda: [self.bootstrap], access, self._timeout_s)

    def access(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> ClientAccess:
        """What clients must know of a broker with `security`: `access("alice").librdkafka()`, `.java()`,
        `.kafka_python()`, `.aiokafka()`. user: one of `users`, the first one if it is left out, or `admin`, the super
        user. mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises BrokerError before the first start
        and after the end, ValueError for what is not there.
        """
        return self._security.access(user, mechanism, lambda: (self.bootstrap, self._files))

    @property
    def _files(self) -> Path:
        """The directory of certificates."""
        if self._home is None:
            raise BrokerError("the broker is closed, and its certificates are gone")
        return self._home.path / "security"

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, on the data and the port it had before; returns when clients are answered.

        Raises BrokerError if it runs already, refuses its settings, fails, or is not ready in time.
        """
        self._begin().spawn(self._arguments())
        self._finish()
        return self

    def stop(self) -> None:
        """Stop it in order, as SIGTERM does; its data stay. Nothing happens if it was stopped or killed before.

        Raises BrokerError if it had ended by itself, fails while it stops, or had to be killed after 30 s.
        """
        if self._child is not None:
            self._child.stop(STOP_S)

    def kill(self) -> None:
        """End it at once, as `kill -9` or a crash does; its data stay, and the next start recovers them."""
        if self._child is not None:
            self._child.reap(kill=True, within_s=0)

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
            if self._home is not None:
                self._home.remove()
                if self._data is not None:  # they lie beside it
                    shutil.rmtree(f"{self._data}{SNAPSHOTS_SUFFIX}", ignore_errors=True)
            self._home = self._child = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_after(error, self.close)

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
        texts = {key: text_of(value) for key, value in (settings or {}).items()}
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

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Remember what is in the broker now, for `restore`: in milliseconds, and nobody is disturbed. Raises
        BrokerError.
        """
        from barnabas.clock import Snapshot

        return Snapshot(self._control.ask("POST", "/v1/snapshots")["id"])

    def restore(self, snapshot: Snapshot) -> None:
        """Give the broker what was in it at a snapshot, as often as is wanted; returns when clients are answered. All
        connections are closed, as by a restart. Raises ValueError if it has no such snapshot, BrokerError.
        """
        self._control.ask("POST", f"/v1/snapshots/{snapshot.id}/restore")

    def forget(self, snapshot: Snapshot) -> None:
        """Remove a snapshot. All are removed when the broker is closed. Raises ValueError if it has none of that id."""
        self._control.ask("DELETE", f"/v1/snapshots/{snapshot.id}")

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _ask(self, act: Callable[[ModuleType, BlockingClient], None]) -> None:
        """`act(blocking_admin, client)`; what the broker refuses is a BrokerError."""
        from barnabas.server.network import blocking_admin
        from barnabas.server.network.blocking_client import BlockingClient, NoAnswer

        credentials, tls = None, None
        if self._security:
            administrator = self.access(ADMINISTRATOR)
            credentials, tls = administrator.credentials, administrator.ssl_context()
        try:
            with BlockingClient(
                self.bootstrap, timeout_s=self._timeout_s, client_id=KIT_CLIENT_ID, tls=tls, credentials=credentials
            ) as client:
                act(blocking_admin, client)
        except (blocking_admin.Refused, NoAnswer) as error:
            raise BrokerError(str(error)) from None

    def _begin(self) -> Child:
        """The directory for the log and for temporary data, the port, the process that is to be."""
        if self._home is None:
            self._home = Home(self)
            self._child = None
        if self._reserved is None and "listeners" not in self._settings:
            self._reserved = reserve(self._port)
            self._port = self._reserved.getsockname()[1]
        if self._child is None:
            self._child = Child("the broker", self._home.path / "broker.log")
        return self._child

    def _arguments(self) -> list[str]:
        arguments = ["dev", "--port", str(self._port), "--data", str(self.data), "--log-level", self._log_level]
        arguments += ["--control", "127.0.0.1:0", "--exit-with-parent"]
        if self._data is None and self._home is not None:
            arguments.append(str(self._home.path))
        arguments += self._security.arguments(self._files)
        for key, value in self._settings.items():
            arguments += ["--set", f"{key}={value}"]
        for topic in self._topics:
            arguments += ["--topic", topic]
        return arguments

    def _finish(self) -> None:
        assert self._child is not None
        self._bootstrap = self._child.wait_until_ready("bootstrap=", self._timeout_s, last="control=")
