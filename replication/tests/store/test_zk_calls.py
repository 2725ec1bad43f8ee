"""What is called on behalf of kazoo's thread in trio's: its faults end neither trio nor what comes behind."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.replication.store.zk_link import Link


def fails(*_: Any) -> None:
    raise ValueError("by the test")


async def test_news_that_cannot_be_taken_in(caplog: pytest.LogCaptureFixture) -> None:
    link = Link(None, 1)
    heard: list[str] = []
    with caplog.at_level(logging.ERROR):
        link.post(fails, "first")
        link.post(heard.append, "second")
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert heard == ["second"]
    assert len(caplog.records) == 1
