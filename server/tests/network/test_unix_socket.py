"""Unix sockets: who may connect, paths that are too long, and what a killed process leaves."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
import trio

from barnabas.server.network import unix_socket


async def echo_once(listener: trio.SocketListener) -> None:
    async with await listener.accept() as stream:
        await stream.send_all(await stream.receive_some())


async def answers(path: str) -> bool:
    async with await unix_socket.connect(path) as stream:
        await stream.send_all(b"hello")
        return await stream.receive_some() == b"hello"


def long_path(directory: Path) -> Path:
    while len(os.fsencode(directory / "socket")) <= unix_socket.LONGEST_BYTES:
        directory /= "a-directory-with-quite-a-long-name"
    directory.mkdir(parents=True)
    return directory / "socket"


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_socket_of_ones_own(tmp_path: Path, is_long: bool) -> None:
    if is_long and sys.platform != "linux":
        pytest.skip("no /proc")
    path = long_path(tmp_path) if is_long else tmp_path / "socket"
    for _ in range(2):  # the second finds the file of the first
        listener = unix_socket.listen(str(path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo_once, listener)
            assert await answers(str(path))
        found = path.stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        await listener.aclose()
    with pytest.raises(ConnectionRefusedError):
        await unix_socket.connect(str(path))


async def test_the_longest_name_and_one_more(tmp_path: Path) -> None:
    room = unix_socket.LONGEST_BYTES - len(os.fsencode(tmp_path)) - 1
    if room < 2:
        pytest.skip("the temporary directory is too deep")
    for length in (room, room + 1):
        path = str(tmp_path / ("s" * length))
        listener = unix_socket.listen(path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo_once, listener)
            assert await answers(path)
        await listener.aclose()


async def test_without_proc_a_long_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_socket, "_DESCRIPTORS", "/nowhere")
    with pytest.raises(OSError, match=r"a Unix socket's path has at most \d+ bytes"):
        unix_socket.listen(str(long_path(tmp_path)))


async def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await unix_socket.connect(str(tmp_path / "socket"))
    with pytest.raises(FileNotFoundError):
        unix_socket.listen(str(tmp_path / "no" / "socket"))
