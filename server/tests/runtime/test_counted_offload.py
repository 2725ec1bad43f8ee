"""An offload that knows whether it is busy."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from barnabas.server.runtime.counted_offload import CountedOffload


async def test_it_is_busy_while_any_of_its_work_runs(nursery: trio.Nursery) -> None:
    offload = CountedOffload()
    assert not offload.is_busy
    await offload.idle()
    first, second = threading.Event(), threading.Event()
    idle = trio.Event()

    async def wait() -> None:
        await offload.idle()
        idle.set()

    nursery.start_soon(offload, first.wait)
    nursery.start_soon(offload, second.wait)
    await trio.testing.wait_all_tasks_blocked()
    assert offload.is_busy
    nursery.start_soon(wait)
    first.set()
    await trio.testing.wait_all_tasks_blocked()
    assert offload.is_busy
    assert not idle.is_set()
    second.set()
    await idle.wait()
    assert not offload.is_busy


async def test_what_fails_is_over() -> None:
    offload = CountedOffload()

    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await offload(fail)
    assert not offload.is_busy
