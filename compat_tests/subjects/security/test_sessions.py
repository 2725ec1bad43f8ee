"""Sessions that end under load (KIP-368): a client writes and reads for some of them; nothing is lost, nothing doubled.

Java, librdkafka and kafka-python log in again on the connection that they have; aiokafka is cut off and connects anew.
All clients run at once, as what takes time here is the sessions.
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
READ_WITHIN_S = 120
Which = tuple[str, str, str]
"""Client, listener, mechanism."""


@dataclass
class Outcome:
    """What one client has sent and read, and how often the sender and the reader have connected, if they say."""

    sent: list[bytes]
    read: list[bytes]
    connects: tuple[int | None, int | None]


def _send(sender: Sender, topic: str, sent: list[bytes]) -> int | None:
    end = float("inf")
    with closing(sender):
        while time.monotonic() < end:
            value = b"%d" % len(sent)
            sender.send(topic, value)
            sent.append(value)
            if len(sent) == 1:
                end = time.monotonic() + SESSIONS * SESSION_MS / 1000
            time.sleep(PAUSE_S)
        return sender.connects()


def _read(reader: Reader, done: threading.Event, sent: list[bytes], read: list[bytes]) -> int | None:
    deadline = time.monotonic() + READ_WITHIN_S
    with closing(reader):
        while not (done.is_set() and len(read) >= len(sent)):
            assert time.monotonic() < deadline, f"{len(read)} of {len(sent)} were read"
            read += reader.read()
        return reader.connects()


def _run(secured: Secured, client: Client, which: Which, threads: ThreadPoolExecutor) -> Outcome:
    _, listener, mechanism = which
    topic = "sessions-" + re.sub("[^A-Za-z0-9]+", "-", "-".join(which)).lower()
    secured.make_topic(topic)
    access = secured.login(listener, mechanism)
    sent: list[bytes] = []
    read: list[bytes] = []
    done = threading.Event()
    reading = threads.submit(lambda: _read(client.reader(access, topic), done, sent, read))
    try:
        connects = _send(client.sender(access), topic, sent)
    finally:
        done.set()
    return Outcome(sent, read, (connects, reading.result()))


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
            outcomes = {
                name: threads.submit(_run, secured, client, (name, listener, mechanism), threads)
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
    for connects in outcome.connects:
        # Who does not log in again connects once more for each session. On a busy machine somebody may be late once.
        assert connects is None or connects < SESSIONS
    if name == "kafka-python":
        # Each connection logs in once, or again; how often depends on how busy the machine is.
        logins = sum("Authenticated" in line for line in made.log)
        connections = sum(line.endswith(": Connected") for line in made.log)
        assert logins > connections, made.log
