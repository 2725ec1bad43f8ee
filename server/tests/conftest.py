"""What holds for all tests of the server.

The broker contains what its parts raise, and so it would contain what a test's fake objects find wrong with it: an
`assert` in a fake token fails the test all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


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
