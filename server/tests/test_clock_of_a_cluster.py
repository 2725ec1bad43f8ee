"""The clock of a cluster, beside control channels that a test makes: what is said to brokers when one is lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from barnabas.child import BrokerError
from barnabas.cluster_clock import ClusterClock
from barnabas.cluster_snapshots import take


@contextmanager
def control_channel(*refused: str) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the paths that it is asked. refused: those that are answered with a conflict."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = 409 if self.path in refused else 200
            said = json.dumps({"error": "no", "at_rest": True, "next_s": None}).encode()
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


def test_no_snapshot_without_a_broker(tmp_path: Path) -> None:
    """One may end between the look whether all are there and the moment at which the others stand still."""
    with control_channel() as (first, asked), pytest.raises(BrokerError, match="1 of 2 brokers"):
        take(ClusterClock(lambda: [first]), tmp_path, tmp_path / "snapshots", 2)
    assert "/v1/snapshots" not in asked
    assert asked[-1] == "/v1/clock/release"
    assert not (tmp_path / "snapshots").exists()


def test_all_are_let_go() -> None:
    with control_channel() as (first, asked), control_channel() as (last, asked_last):
        clock = ClusterClock(lambda: [first, last])
        clock.advance(1)
        assert clock.ahead_s == 1
    assert asked == asked_last
    assert (asked[0], asked[-1]) == ("/v1/clock/hold", "/v1/clock/release")
