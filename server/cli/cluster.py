"""`barnabas cluster`: brokers and the store of their metadata as processes of this machine."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.cli.common import (
    OK,
    Refused,
    complain,
    refused_files,
    say,
    secured,
    set_up_log,
    topics_of,
)
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.config.sasl import sasl_settings
from barnabas.server.machine.children import Child
from barnabas.server.machine.plan import BrokerPlan, Wishes, make_plan
from barnabas.server.machine.supervisor import ClusterFailed, Supervisor
from barnabas.server.runtime.wording import causes, crash

if TYPE_CHECKING:
    from barnabas.replication import TopicRequest

log = logging.getLogger("barnabas.cluster")

PORT: Final = 9092
LOCK: Final = ".cluster.lock"
LOCK_S: Final = 20.0
"""How long to wait for what a killed supervisor has left: its brokers and its store stop by themselves."""


def run(chosen: argparse.Namespace, environ: Mapping[str, str], signals: ModuleType | None) -> int:
    """The exit code."""
    directories: list[str] = []

    def temporary(prefix: str) -> str:
        directories.append(tempfile.mkdtemp(prefix=prefix))
        return directories[-1]

    def clean_up() -> None:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)

    if signals is not None:
        signals.leave_at_once(clean_up)
    try:
        with ExitStack() as stack:
            with nullcontext() if signals is None else signals.held():  # a directory is removed or was not made
                command = _Command(chosen, environ, temporary, stack)
            return command.run()
    except Refused as error:
        return complain(error.lines)
    except ClusterFailed as failed:
        log.critical("%s", failed)
        return failed.code
    finally:
        if signals is not None:
            signals.ignore()
        clean_up()


class _Command:
    """What was asked for, checked. Raises Refused."""

    def __init__(
        self,
        chosen: argparse.Namespace,
        environ: Mapping[str, str],
        temporary: Callable[[str], str],
        stack: ExitStack,
    ) -> None:
        chosen.log_name = chosen.log_name or "cluster"
        self._chosen = chosen
        self._environ = environ
        self._stack = stack
        self._files: str | None = None
        if chosen.security and not chosen.security_files:
            self._files = temporary("barnabas-security-")
        self._security = secured(chosen, self._files)
        self._topics = [*topics_of(chosen.topic), *([] if chosen.no_env else _topics_in(environ))]
        self._wishes = self._said()
        with refused_files(chosen.file):
            try:
                self._plan = make_plan(
                    self._wishes,
                    temporary=partial(temporary, "barnabas-cluster-"),
                    free_port=lambda: stack.enter_context(_reserved_port()),
                    port=PORT,
                )
                for broker in self._plan.brokers:
                    sasl_settings(broker.config)
            except SettingsRefused as error:
                raise Refused(*error.problems) from None
        set_up_log(chosen)

    def _said(self) -> Wishes:
        chosen, security = self._chosen, self._security
        listener: str = "PLAINTEXT" if security is None else chosen.security
        more = () if security is None else security.settings(0, between_brokers=True)
        return Wishes(
            brokers=chosen.brokers,
            file=chosen.file,
            environ=None if chosen.no_env else self._environ,
            overrides=chosen.set,
            port=chosen.port,
            data=chosen.data,
            more=[each for each in more if not each.startswith("listeners=")],
            listener=listener,
        )

    def run(self) -> int:
        """Run everything to its end; the exit code. Raises ClusterFailed."""
        plan = self._plan
        for notice in plan.brokers[0].config.notices:
            log.warning("%s", notice.text)
        lock = self._stack.enter_context(_locked(plan.directory))
        # Nobody else has the lock: no broker of an earlier run is alive. Those of this run are, when it starts again.
        store = self._child(lock, "store", "store", plan.store, at_first=["--end-sessions"])
        brokers = {broker.number: self._broker(lock, broker) for broker in plan.brokers}
        supervisor = Supervisor(store, brokers, plan.socket, partial(self._announce, list(brokers.values())))
        try:
            trio.run(supervisor.run)
        except Exception as error:
            for cause in causes(error):
                if isinstance(cause, ClusterFailed):
                    raise cause from None
                log.error("stopping: internal error", exc_info=cause)
            raise ClusterFailed(f"crashed: {'; '.join(map(crash, causes(error)))}") from None
        return OK

    def _child(self, lock: int, name: str, *arguments: str, at_first: Sequence[str] = ()) -> Child:
        chosen = self._chosen
        rest = ["--announce", "--exit-with-parent", "--log-name", name]
        rest += ["--log-format", chosen.log_format, "--log-level", chosen.log_level]
        rest += [word for text in chosen.logger for word in ("--logger", text)]
        return Child(name, [*arguments, *rest], at_first=at_first, environ=self._environ, lock=lock)

    def _broker(self, lock: int, broker: BrokerPlan) -> Child:
        chosen = self._chosen
        file = [chosen.file] if chosen.file is not None else []
        settings = [*self._wishes.overrides, *self._wishes.more, *broker.settings]
        words = [word for text in settings for word in ("--set", text)]
        return self._child(lock, broker.name, "serve", *file, *(["--no-env"] if chosen.no_env else []), *words)

    async def _announce(self, brokers: Sequence[Child]) -> None:
        addresses = [broker.said.removeprefix("bootstrap=") for broker in brokers]
        bootstrap = ",".join(addresses)
        lines = [f"bootstrap={bootstrap}"]
        if self._security is not None:
            await trio.to_thread.run_sync(self._security.add_users, self._plan.brokers[0].config)
            self._security.write_properties(bootstrap)
            if self._files is not None:
                lines.append(f"security={self._files}")
        if self._topics:
            await trio.to_thread.run_sync(self._make_topics, addresses)
        log.info("%d brokers are ready", len(brokers))
        say(*lines)

    def _make_topics(self, addresses: Sequence[str]) -> None:
        from barnabas.server.network.blocking_admin import Refused as TopicRefused
        from barnabas.server.network.blocking_client import NoAnswer
        from barnabas.server.network.blocking_cluster import BlockingCluster

        tls, credentials = None, None
        if self._security is not None:
            access = self._security.administrator(addresses[0])
            tls, credentials = access.ssl_context(), access.credentials
        cluster = BlockingCluster(addresses, tls=tls, credentials=credentials)
        for topic in self._topics:
            try:
                settings = {key: value for key, value in topic.configs if value is not None}
                replicas = topic.replication_factor
                cluster.create_topic(topic.name, topic.partitions, settings, replicas, may_exist=True)
            except (TopicRefused, NoAnswer) as error:
                log.warning("%s", error)


def _topics_in(environ: Mapping[str, str]) -> Sequence[TopicRequest]:
    from barnabas.server.broker.first_topics import topics_in

    try:
        return topics_in(environ)
    except ValueError as error:
        raise Refused(str(error)) from None


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A free port of this machine that stays ours, so that a broker has it again after a restart. It is bound without
    listening, and the broker shares it.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        # Only now: asked for any free port, the kernel could otherwise choose one that is reserved.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield sock.getsockname()[1]


@contextmanager
def _locked(directory: str) -> Iterator[int]:
    """The lock of a cluster's directory, as a descriptor that everything it starts inherits. Raises ClusterFailed."""
    try:
        os.makedirs(directory, exist_ok=True)
        lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterFailed(f"{directory} cannot be used: {error.strerror or error}") from None
    try:
        trio.run(_take, lock, directory)
        yield lock
    finally:
        os.close(lock)


async def _take(lock: int, directory: str) -> None:
    said = False
    with trio.move_on_after(LOCK_S):
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not said:
                    log.warning(
                        "%s is in use: waiting up to %g s for what is left of an earlier run", directory, LOCK_S
                    )
                    said = True
            await trio.sleep(0.1)
    raise ClusterFailed(f"{directory} is used by another cluster")
