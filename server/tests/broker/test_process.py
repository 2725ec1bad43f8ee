"""A broker as this process: what the log says when it ends by itself, and that what was written is safe then."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.logdir import LogDirError, StorageError
from barnabas.server.broker import process
from barnabas.server.broker.broker import BrokerFailed
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.listeners import CannotListen, bind
from barnabas.server.runtime import logs
from barnabas.server.runtime.wording import causes, in_words
from barnabas.server.settings.endpoints import ListenAddress
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import produce
from barnabas.server.tests.apis.records.test_produce import batch, topic
from barnabas.server.tests.runtime.test_logs import restored  # noqa: F401  # the log set-up is undone after each test


def bug() -> Exception:
    """An exception with a traceback."""
    try:
        return ValueError(f"{[][0]}")  # type: ignore[misc]
    except IndexError as error:
        return error


class Ends:
    """Stands for a broker: ends at once, with `error`."""

    is_open = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery():  # as in life, in a nursery of its own
            raise self._error


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a broker that ends with an error; the lines of its log."""

    def run(error: Exception, style: str = "text") -> list[str]:
        stream = io.StringIO()
        logs.set_up("info", style, stream=stream)
        monkeypatch.setattr(process, "Broker", lambda config: Ends(error))
        monkeypatch.setattr("barnabas.server.runtime.descriptors.raise_limit", lambda: None)
        monkeypatch.setattr("barnabas.server.runtime.twins.say_which", lambda: None)
        assert process.run(BrokerConfig.from_values({}), pytest.fail) == 1
        return stream.getvalue().splitlines()

    return run


@pytest.mark.parametrize(
    "error",
    [
        LogDirError("/data belongs to another cluster"),
        BrokerFailed("/data belongs to another cluster"),
        CannotListen("/data belongs to another cluster"),
    ],
)
def test_a_reason_is_one_line(ended: Callable[..., list[str]], error: Exception) -> None:
    (line,) = ended(error)
    assert line.endswith(" FATAL broker: /data belongs to another cluster")


def test_an_error_of_the_system_names_the_file(ended: Callable[..., list[str]]) -> None:
    (line,) = ended(PermissionError(errno.EACCES, "Permission denied", "/data/metadata.journal"))
    assert line.endswith(" FATAL broker: /data/metadata.journal: permission denied")


def test_a_disk_that_refuses_is_no_bug(ended: Callable[..., list[str]]) -> None:
    (line,) = ended(
        ExceptionGroup("", [StorageError("closing /data", OSError(errno.ENOSPC, "No space left on device"))])
    )
    assert line.endswith(" FATAL broker: closing /data: No space left on device")


def test_an_error_of_the_system_without_a_place(ended: Callable[..., list[str]]) -> None:
    """An error without a message: its place is reported."""
    lines = ended(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert re.search(r" FATAL broker: crashed: OSError: too many open files \(test_process.py:\d+\)$", lines[-1])


def test_a_crash_ends_with_one_fatal_line(ended: Callable[..., list[str]]) -> None:
    lines = ended(ExceptionGroup("outer", [ExceptionGroup("inner", [bug(), LogDirError("no disk")]), bug()]))
    assert [line for line in lines if " FATAL " in line] == lines[-1:]
    said = r" FATAL broker: crashed: IndexError: list index out of range \(test_process.py:\d+\); no disk"
    assert re.search(said + "$", lines[-1])
    assert " ERROR broker: stopping: internal error" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
    assert "ExceptionGroup" not in "".join(lines)


def test_a_crash_in_json(ended: Callable[..., list[str]]) -> None:
    """For readers that are programs: JSON objects, and nothing else."""
    records = [json.loads(line) for line in ended(ExceptionGroup("", [bug()]), "json")]
    assert [record["level"] for record in records] == ["ERROR", "FATAL"]
    assert records[0]["exception"].startswith("Traceback (most recent call last):")
    assert records[0]["exception"].endswith("IndexError: list index out of range")
    assert records[1]["message"].startswith("crashed: IndexError: list index out of range")


async def test_what_was_written_is_safe_after_a_crash(tmp_path: Path) -> None:
    """Flushed and checkpointed, as by a stop; but not taken for one: the next start has a look."""

    async def fails() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with embedded_broker(tmp_path) as broker:
            await topic(broker)
            async with connected(broker) as client:
                await produce(client, batch(b"one"), batch(b"two"))
            broker.parts.nursery.start_soon(fails)
            await broker.stopped()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text().split("\n")
    assert "t 0 2" in points
    async with embedded_broker(tmp_path) as broker:
        assert broker.services.partitions.get("t", 0).log_end_offset == 2
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_the_first_failure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that closing a broken disk did not work either."""

    def refuses(*arguments: object, **options: object) -> None:
        raise StorageError("closing it", OSError(errno.EIO, "no"))

    with pytest.RaisesGroup(pytest.RaisesExc(BrokerFailed, match="^the first trouble$"), flatten_subgroups=True):
        async with embedded_broker(tmp_path) as broker:
            monkeypatch.setattr(type(broker.services.partitions.log_dirs), "close", refuses)
            broker._must_stop("the first trouble")
            await broker.stopped()


def test_the_file_that_was_meant_is_named() -> None:
    error = StorageError("reading /data", PermissionError(errno.EACCES, "Permission denied", "/data/a-0/0.log"))
    assert error.message == "reading /data: /data/a-0/0.log: Permission denied"
    error = StorageError(
        "reading /data/a-0/0.log", PermissionError(errno.EACCES, "Permission denied", "/data/a-0/0.log")
    )
    assert error.message == "reading /data/a-0/0.log: Permission denied"


# -- words ------------------------------------------------------------------------------------------------------------


def listen(host: str, port: int = 0) -> str:
    """Why not."""
    with pytest.raises(CannotListen) as caught:
        bind(ListenAddress("PLAINTEXT", "PLAINTEXT", host, port), 5, -1)
    return str(caught.value)


def test_addresses_that_cannot_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert listen("127.0.0.1", port) == (
            f"cannot listen on PLAINTEXT://127.0.0.1:{port}: address already in use "
            "(another program listens there, perhaps another broker)"
        )
    assert listen("192.0.2.1").startswith(
        "cannot listen on PLAINTEXT://192.0.2.1:0: cannot assign requested address (no interface of this machine has it"
    )
    assert listen("a" * 70 + ".invalid").startswith("cannot listen on PLAINTEXT://aaa")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "permission denied"),
    ],
)
def test_what_the_system_says_of_an_address(monkeypatch: pytest.MonkeyPatch, error: OSError, said: str) -> None:
    def refuses(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(socket, "create_server", refuses)
    text = listen("host", 80)
    assert text.startswith(f"cannot listen on PLAINTEXT://host:80: {said} (")
    assert "Errno" not in text
    assert "[" not in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "too many open files"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/a"), "/a: no such file or directory"),
        (OSError(errno.EXDEV, os.strerror(errno.EXDEV), "/a", None, "/b"), "/a and /b: invalid cross-device link"),
        (OSError("what a library says"), "what a library says"),
        (OSError(errno.EIO, "A segment is short"), "a segment is short"),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "reading a-0: no"), "reading a-0: no"),
        (ValueError("two\n lines"), "two lines"),
        (ValueError(), "ValueError"),
    ],
)
def test_in_words(error: Exception, words: str) -> None:
    assert in_words(error) == words


def test_causes_are_printed_once() -> None:
    one, same, other = ValueError("a"), ValueError("a"), ValueError("b")
    assert causes(ExceptionGroup("", [one, ExceptionGroup("", [same, other])])) == [one, other]
    assert causes(one) == [one]
