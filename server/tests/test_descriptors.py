"""Descriptors: clients get what the logs leave, and wait for the rest."""

from __future__ import annotations

import logging
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from kproto.messages import MetadataRequest
from logdir import half_of_the_limit
from server import descriptors
from server.descriptors import Allowance
from server.testing import embedded_broker
from server.tests.test_barnabas_process import partitions_of_new_topic
from server.tests.test_reactor import dialled, fine, reactor, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have 400, as far as it looks."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (400, 400))


@pytest.mark.usefixtures("limit")
def test_who_gets_how_many() -> None:
    allowance = Allowance()
    assert allowance.connections_max == 400 - half_of_the_limit() - descriptors.RESERVE == 136
    assert allowance.admits(135, 0)
    assert not allowance.admits(136, 0)


@pytest.mark.usefixtures("limit")
def test_what_else_is_open_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Said once, until it was over for a while."""
    allowance = Allowance()
    taken: list[int] = []
    try:
        while allowance.admits(10, 0):
            taken.append(os.dup(0))
        assert taken[-1] == 400 - descriptors.RESERVE - 1
        assert not allowance.admits(10, 0)
    finally:
        for fd in taken:
            os.close(fd)
    assert allowance.admits(10, 0)
    assert not allowance.admits(136, 0)
    assert len(caplog.records) == 1
    assert allowance.admits(4, 0)
    assert not allowance.admits(136, 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert caplog.records[0].getMessage().startswith("10 connections are open: further ones wait until others are")


def test_an_unlimited_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert Allowance().admits(1_000_000, 0)


def test_a_tiny_process_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (20, 20))
    assert Allowance().connections_max == 1


@pytest.mark.usefixtures("limit")
def test_too_few_for_the_partitions(caplog: pytest.LogCaptureFixture) -> None:
    descriptors.warn_if_too_few(200)
    assert not caplog.records
    descriptors.warn_if_too_few(3000)
    (record,) = caplog.records
    assert record.getMessage().endswith("(ulimit -n, now 400) to 6064 at least")


async def test_further_clients_wait(caplog: pytest.LogCaptureFixture) -> None:
    async with embedded_broker() as broker, dialled(broker) as one, dialled(broker) as two:
        await fine(one)
        await fine(two)
        reactor(broker)._allowance.connections_max = 2
        async with dialled(broker) as third:
            await third.send(MetadataRequest(topics=[]), 12)
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            await fine(one)
            assert len(reactor(broker).connections) == 2
            await two.stream.aclose()
            with trio.fail_after(10):
                await third.receive(MetadataRequest(), 12)
            await until(lambda: len(reactor(broker).connections) == 2)
    assert [r.getMessage().split(":")[0] for r in caplog.records if r.levelno >= logging.WARNING] == [
        "2 connections are open"
    ]


@pytest.mark.slow
def test_more_clients_than_descriptors(tmp_path: Path) -> None:
    """A broker that may have 200 survives 300 connections, with work for the disk meanwhile."""
    settings = [f"log.dirs={tmp_path}", "log.flush.offset.checkpoint.interval.ms=200", "log.initial.task.delay.ms=100"]
    command = [sys.executable, str(ROOT / "barnabas.py"), "dev", *(x for each in settings for x in ("--set", each))]
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        held: list[socket.socket] = []
        try:
            assert process.stdout is not None
            bootstrap = process.stdout.readline().strip().removeprefix("bootstrap=")
            host, _, port = bootstrap.rpartition(":")
            assert partitions_of_new_topic(bootstrap, "before") == 1
            for _ in range(300):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex((host, int(port)))
                held.append(sock)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.1)
            for sock in held[:280]:
                sock.close()
            assert partitions_of_new_topic(bootstrap, "after") == 1
        finally:
            for sock in held:
                sock.close()
            process.terminate()
            _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert {line.split(": ")[1] for line in err.splitlines()} == {"50 connections are open"}
