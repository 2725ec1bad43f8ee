"""A finalizer that raises disturbs nothing of the code in which the collector happened to run.

Warnings are errors in our tests, and so the finalizer of a socket that a client had left open raised. pytest's
own hook kept that error until the end of the test, with its traceback, and in it the frame that ran at that moment:
kafka-python, between two records, could not extend its buffer any more ("Existing exports of data").
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

import pytest


class Raises:
    """Something whose finalizer raises."""

    def __del__(self) -> None:
        raise ValueError("this is ignored")


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("leave", [socket.socket, Raises])
def test_no_frame_is_kept(leave: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> None:
    buffer = bytearray(8)

    def look() -> int:
        view = memoryview(buffer)
        cycle: list[object] = [leave()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        return len(view)

    assert look() == 8
    buffer.extend(b"more")
    assert "Exception ignored in" in capsys.readouterr().err, "the finalizer has not run, or has not raised"
