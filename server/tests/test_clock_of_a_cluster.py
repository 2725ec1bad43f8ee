"""The clock of a cluster, beside control channels that a test makes: what is said to brokers when one is lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from barnabas import cluster_clock
from barnabas.child import BrokerError, Child
from barnabas.cluster_clock import LOOKS, ClusterClock, Held
from barnabas.cluster_snapshots import take


@contextmanager
def control_channel(
    *refused: str, told: Callable[[str], None] = lambda path: None, rests_after: int = 0
) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the paths that it is asked. refused: those that are answered with a conflict. told: called with
    each before it is answered. rests_after: so often it says first that it is not at rest.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append(self.path)
            told(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = 409 if self.path in refused else 200
            is_at_rest = asked.count("/v1/clock/step") > rests_after
            said = json.dumps({"error": "no", "at_rest": is_at_rest, "next_s": None, "id": "x"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_the_others_go_on_when_one_cannot_be_held(nobody: str) -> None:
    with (
        control_channel() as (first, asked),
        control_channel() as (last, asked_last),
        pytest.raises(BrokerError, match="does not answer /v1/clock/hold"),
    ):
        ClusterClock(lambda: [first, nobody, last]).advance(1)
    assert asked == asked_last == ["/v1/clock/hold", "/v1/clock/release"]


def test_a_clock_that_somebody_else_holds_is_left_alone() -> None:
    with (
        control_channel("/v1/clock/hold") as (first, asked),
        control_channel() as (last, asked_last),
        pytest.raises(BrokerError, match="/v1/clock/hold: no"),
    ):
        ClusterClock(lambda: [first, last]).advance(1)
    assert asked == ["/v1/clock/hold"]
    assert asked_last == ["/v1/clock/hold", "/v1/clock/release"]


@pytest.mark.parametrize(("rests_after", "next_s"), [(LOOKS - 1, float("inf")), (LOOKS, 0)])
def test_whoever_had_no_core_looks_again(monkeypatch: pytest.MonkeyPatch, rests_after: int, next_s: float) -> None:
    monkeypatch.setattr(cluster_clock, "PATIENCE_S", 0)  # all of it went by at once
    with control_channel(rests_after=rests_after) as (url, _):
        held = Held([url])
        try:
            assert held.come_to_rest() == next_s
        finally:
            held.close()


def test_no_snapshot_without_a_broker(tmp_path: Path) -> None:
    """One may end between the look whether all are there and the moment at which the others stand still."""
    with control_channel() as (first, asked), pytest.raises(BrokerError, match="1 of 2 brokers"):
        take(ClusterClock(lambda: [first]), tmp_path, nullcontext(), tmp_path / "snapshots", 2)
    assert "/v1/snapshots" not in asked
    assert asked[-1] == "/v1/clock/release"
    assert not (tmp_path / "snapshots").exists()


# Stands for the store: a number that goes up in one file, then in the other, as fast as it can.
RESTLESS = """
import itertools, os, sys
from pathlib import Path

files = [Path(sys.argv[1], name) for name in ("metadata.snapshot", "metadata.journal")]
for number in itertools.count():
    for file in files:
        file.with_suffix(".tmp").write_text(str(number))
        os.replace(file.with_suffix(".tmp"), file)
    if not number:
        print("ready", flush=True)
"""


@contextmanager
def restless(directory: Path) -> Iterator[Child]:
    """Such a process, and what the kit knows of it."""
    command = [sys.executable, "-c", RESTLESS, str(directory)]
    child = Child("the metadata store", directory / "log")
    child._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    try:
        child.wait_until_ready("ready", 60)
        yield child
    finally:
        child.reap(kill=True, within_s=0)


def test_the_store_stands_still_meanwhile(tmp_path: Path) -> None:
    """What is copied of it is what was there when the first broker was asked, and when the last one was."""
    files = [tmp_path / "metadata.snapshot", tmp_path / "metadata.journal"]
    seen: list[list[str]] = []

    def look(path: str) -> None:
        if path == "/v1/snapshots":
            seen.append([file.read_text() for file in files])

    with (
        restless(tmp_path) as store,
        control_channel(told=look) as (first, _),
        control_channel(told=look) as (last, _),
    ):
        clock = ClusterClock(lambda: [first, last])
        for _ in range(5):
            seen.clear()
            taken = take(clock, tmp_path, store.standing_still(), tmp_path / "snapshots", 2)
            assert seen == [[(taken.store / file.name).read_text() for file in files]] * 2
            while files[1].read_text() == seen[0][1]:  # it goes on
                pass


def test_no_snapshot_of_a_store_that_has_ended(tmp_path: Path) -> None:
    with restless(tmp_path) as store, control_channel() as (first, asked):
        clock = ClusterClock(lambda: [first])
        os.kill(store.pid, 9)
        with pytest.raises(BrokerError, match=r"the metadata store (is not running|had ended by itself)"):
            take(clock, tmp_path, store.standing_still(), tmp_path / "snapshots", 1)
        assert "/v1/snapshots" not in asked
        assert asked[-1] == "/v1/clock/release"
        assert not store.running


def test_all_are_let_go() -> None:
    with control_channel() as (first, asked), control_channel() as (last, asked_last):
        clock = ClusterClock(lambda: [first, last])
        clock.advance(1)
        assert clock.ahead_s == 1
    assert asked == asked_last
    assert (asked[0], asked[-1]) == ("/v1/clock/hold", "/v1/clock/release")
