"""What holds for all tests of the server.

The broker contains what its parts raise, and so it would contain what a test's fake objects find wrong with it: an
`assert` in a fake token fails the test all the same.

And it gives up after some seconds what others do not bring to an end. In real time, that would be the test's process
itself, which may have no core for longer than that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas.server.broker import broker
from barnabas.server.cluster import topic_requests
from barnabas.server.httpd import http_server
from barnabas.server.network import open_listeners, reactor

PATIENCE_S = 600.0
"""Longer than anything stands still."""
WAITS = (
    (broker, "IMAGE_S"),
    (broker, "REGISTERED_S"),
    (http_server, "REQUEST_S"),
    (open_listeners, "CLOSE_S"),
    (reactor, "HANDSHAKE_S"),
    (topic_requests, "AUTO_CREATE_WAIT_S"),
)
"""What the broker waits for no longer than for some seconds."""


class _Kept(logging.Handler):
    """Keeps what was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def trouble() -> Iterator[list[logging.LogRecord]]:
    """The errors that the broker has logged so far."""
    handler = _Kept()
    logger = logging.getLogger("barnabas")
    logger.addHandler(handler)
    yield handler.records
    logger.removeHandler(handler)
    for record in handler.records:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, AssertionError):
            raise error


@pytest.fixture(autouse=True)
def _a_machine_that_stands_still(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the machine nothing is late, however long this process had no core in between."""
    if not {"mock_clock", "autojump_clock"} & set(request.fixturenames):
        for module, name in WAITS:
            monkeypatch.setattr(module, name, PATIENCE_S)
