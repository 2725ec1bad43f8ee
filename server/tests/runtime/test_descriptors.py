"""Descriptors: clients get what the logs leave, and wait for the rest."""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import CreateTopicsRequest, MetadataRequest
from barnabas.logdir import StorageError, half_of_the_limit
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime import descriptors
from barnabas.server.runtime.descriptors import Allowance
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.network.tcp_rig import SMALL, SMALL_BUFFERS, dialled, fine, reactor, until
from barnabas.server.tests.test_barnabas_process import partitions_of_new_topic

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have 400, as far as it looks."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (400, 400))


@pytest.mark.usefixtures("limit")
def test_how_descriptors_are_divided() -> None:
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
            with trio.fail_after(60):
                await third.receive(MetadataRequest(), 12)
            await until(lambda: len(reactor(broker).connections) == 2)
    assert [r.getMessage().split(":")[0] for r in caplog.records if r.levelno >= logging.WARNING] == [
        "2 connections are open"
    ]


class Short(Allowance):
    """There are too few descriptors, until a connection was closed."""

    def is_short(self, any_fd: int) -> bool:
        return not self.is_over()

    def is_over(self) -> bool:
        return False


async def test_a_client_that_does_not_read_holds_no_files_then(caplog: pytest.LogCaptureFixture) -> None:
    """Unread answers of many files are dropped when descriptors are short, the largest first."""
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as some,
        dialled(broker, receive_buffer_bytes=SMALL) as many,
    ):
        await create(witness, 40)
        for index in range(40):
            answer = await witness.ask(request(batch(bytes(50_000)), index=index), 9)
            assert only(answer).error_code == 0
        for client, count in ((some, 20), (many, 40)):
            await client.send(fetch(*(("t", index, 0) for index in range(count))), 12)
        connections = reactor(broker).connections
        await until(lambda: sorted(bool(each.out) for each in connections) == [False, True, True])
        assert len(reactor(broker).connections) == 3
        allowance = Short()
        allowance.is_over = lambda: len(reactor(broker).connections) < 3  # type: ignore[method-assign]
        reactor(broker)._allowance = allowance
        reactor(broker).sweep(float("-inf"))
        assert await closed_by_broker_after_some(many)
        assert len(reactor(broker).connections) == 2
        await fine(witness)
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "it does not read its response, which holds 3" in record.getMessage()


async def closed_by_broker_after_some(client: Client) -> bool:
    """What was sent before comes, and then the end."""
    try:
        while await client.stream.receive_some(1 << 20):
            pass
    except trio.BrokenResourceError:
        pass
    return True


def out_of_descriptors(partition: Partition, read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Stands for `Partition.read`: the last one cannot open its segment."""
    if partition.index == 2:
        raise StorageError("reading", OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    return read(partition, *arguments, **options)


async def create(client: Client, partitions: int) -> None:
    new = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    assert (await client.ask(CreateTopicsRequest(topics=[new]), 5)).topics[0].error_code == 0


async def test_an_answer_that_is_full_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of descriptors in the middle of a Fetch: it answers what was read, the rest comes next time."""
    async with embedded_broker() as broker, dialled(broker) as client:
        await create(client, 3)
        for index in range(3):
            await client.ask(request(batch(b"here"), index=index), 9)
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read", partialmethod(out_of_descriptors, Partition.read))
            answer = flat(await client.ask(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0)), 12))
            assert [(answer[i].error_code, bool(answer[i].records)) for i in range(3)] == [
                (0, True),
                (0, True),
                (0, False),
            ]
            assert answer[2].high_watermark == 1
            alone = flat(await client.ask(fetch(("t", 2, 0)), 12))[2]
            assert alone.error_code == 56
        assert values(flat(await client.ask(fetch(("t", 2, 0)), 12))[2]) == [b"here"]


def state_of(pid: int, port: int) -> str:
    """What the process has open, and the kernel's rows of the port: queues, and connections that nobody accepted."""
    place = Path("/proc", str(pid))
    opened = sorted(f"{each.name}: {os.readlink(each)}" for each in (place / "fd").iterdir())
    rows = [
        row
        for name in ("tcp", "tcp6")
        for row in (place / "net" / name).read_text().splitlines()
        if f":{port:04X} " in row
    ]
    return "\n".join([*opened, *rows])


@pytest.mark.slow
def test_more_clients_than_descriptors(tmp_path: Path) -> None:
    """A broker that may have 200 survives 300 connections, with work for the disk meanwhile."""
    data = tmp_path / "data"
    settings = [f"log.dirs={data}", "log.flush.offset.checkpoint.interval.ms=200", "log.initial.task.delay.ms=100"]
    command = [
        sys.executable,
        str(ROOT / "barnabas" / "__main__.py"),
        "dev",
        *(x for each in settings for x in ("--set", each)),
    ]
    log = tmp_path / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *command], stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
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
            # Until it is full, and then for a while.
            deadline, until = time.monotonic() + 60, math.inf
            while time.monotonic() < until:
                assert process.poll() is None
                assert time.monotonic() < deadline, log.read_text()
                if until == math.inf and "connections are open" in log.read_text():
                    until = time.monotonic() + 3
                time.sleep(0.1)
            for sock in held[:280]:
                sock.close()
            assert partitions_of_new_topic(bootstrap, "after") == 1
        except BaseException as error:
            error.add_note(state_of(process.pid, int(port)))
            raise
        finally:
            for sock in held:
                sock.close()
            process.terminate()
            process.wait(60)
            err = log.read_text()
            print(err)
    assert process.returncode == 0, err
    assert {line.split(": ")[1] for line in err.splitlines()} == {"50 connections are open"}
