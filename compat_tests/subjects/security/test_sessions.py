"""Sessions that end under load (KIP-368): a client writes and reads for some of them; nothing is lost, nothing doubled.

Java, librdkafka and kafka-python log in again on the connection that they have; aiokafka is cut off and connects anew.
All clients run at once, as what takes time here is the sessions.

A client that stands still for too long is cut off as well, and connects once more. So each goes on until one of its
connections must have outlived a session: until it has logged in again more often than it has connected.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import cache

import pytest

from compat_tests.harness.secured import SESSION_MS, Secured
from compat_tests.subjects.security.clients.choice import Clients, marks
from compat_tests.subjects.security.clients.client import Client, Reader, Sender
from compat_tests.subjects.security.clients.log_lines import LogLines

AREA = "Sessions that end"
LOGINS = (("SHORT", "PLAIN"), ("BRIEF", "SCRAM-SHA-512"), ("BRIEF", "OAUTHBEARER"))
# Whoever comes first makes the load, which may not start JVMs while a test without them runs.
NAMES = ("Java 4.3.1", "Java 3.9.1", "confluent-kafka", "kafka-python", "aiokafka")
SESSIONS = 3
PAUSE_S = 0.02
WITHIN_S = 200
Which = tuple[str, str, str]
"""Client, listener, mechanism."""


@dataclass
class Outcome:
    """What one client has sent and read."""

    sent: list[bytes]
    read: list[bytes]


def _outlives_a_session(client: Sender | Reader) -> bool:
    """Whether a connection has, so far; who does not say how often it logs in is believed."""
    again = client.logins_again()
    connects = client.connects()
    return again is None or connects is None or again > connects


def _logs_in_again(lines: list[str]) -> bool:
    """Whether kafka-python has, as its log says."""
    logins = sum("Authenticated" in line for line in lines)
    connections = sum(line.endswith(": Connected") for line in lines)
    return logins > connections


def _send(sender: Sender, topic: str, sent: list[bytes], is_shown: Callable[[], bool]) -> None:
    end = float("inf")
    deadline = time.monotonic() + WITHIN_S
    with closing(sender):
        while time.monotonic() < end or not (_outlives_a_session(sender) and is_shown()):
            assert time.monotonic() < deadline, f"{sender.connects()} connections, {sender.logins_again()} more log-ins"
            value = b"%d" % len(sent)
            sender.send(topic, value)
            sent.append(value)
            if len(sent) == 1:
                end = time.monotonic() + SESSIONS * SESSION_MS / 1000
            time.sleep(PAUSE_S)


def _read(reader: Reader, done: threading.Event, sent: list[bytes], read: list[bytes]) -> None:
    deadline = time.monotonic() + 2 * WITHIN_S
    with closing(reader):
        while not (done.is_set() and len(read) >= len(sent) and _outlives_a_session(reader)):
            assert time.monotonic() < deadline, (
                f"{len(read)} of {len(sent)} were read; "
                f"{reader.connects()} connections, {reader.logins_again()} more log-ins"
            )
            read += reader.read()


def _run(
    secured: Secured, client: Client, which: Which, threads: ThreadPoolExecutor, is_shown: Callable[[], bool]
) -> Outcome:
    _, listener, mechanism = which
    topic = "sessions-" + re.sub("[^A-Za-z0-9]+", "-", "-".join(which)).lower()
    secured.make_topic(topic)
    access = secured.login(listener, mechanism)
    sent: list[bytes] = []
    read: list[bytes] = []
    done = threading.Event()
    reading = threads.submit(lambda: _read(client.reader(access, topic), done, sent, read))
    try:
        _send(client.sender(access), topic, sent, is_shown)
    finally:
        done.set()
    reading.result()
    return Outcome(sent, read)


@dataclass
class Load:
    """What became of all clients by one way to log in, and what kafka-python said of its connections meanwhile."""

    outcomes: dict[str, Future[Outcome]]
    log: list[str]


@pytest.fixture(scope="module")
def load(request: pytest.FixtureRequest, secured: Secured, clients: Clients) -> Callable[[str, str], Load]:
    """For a listener and a mechanism, what the chosen tests want; made when the first one asks."""
    items = [item.callspec.params for item in request.session.items if item.path == request.path]

    @cache
    def make(listener: str, mechanism: str) -> Load:
        names = [given["name"] for given in items if (given["listener"], given["mechanism"]) == (listener, mechanism)]
        made = {name: clients.get(name) for name in names}
        log = LogLines("kafka.net.connection", level=logging.INFO)
        with ThreadPoolExecutor(2 * len(made)) as threads, log:
            shown = {"kafka-python": lambda: _logs_in_again(log.lines)}
            outcomes = {
                name: threads.submit(
                    _run, secured, client, (name, listener, mechanism), threads, shown.get(name, lambda: True)
                )
                for name, client in made.items()
            }
            wait(outcomes.values())
        return Load(outcomes, log.lines)

    return make


def _rows() -> Iterator[object]:
    for listener, mechanism in LOGINS:
        title = f"goes on: {mechanism}, {'without' if listener == 'SHORT' else 'through'} TLS"
        for name in NAMES:
            yield pytest.param(name, listener, mechanism, marks=list(marks(name, AREA, title)))


@pytest.mark.parametrize(("name", "listener", "mechanism"), list(_rows()))
def test_goes_on(load: Callable[[str, str], Load], name: str, listener: str, mechanism: str) -> None:
    made = load(listener, mechanism)
    outcome = made.outcomes[name].result()
    assert outcome.sent
    assert outcome.read == outcome.sent
    if name == "kafka-python":
        # Each connection logs in once, or again; how often depends on how busy the machine is.
        assert _logs_in_again(made.log), made.log
