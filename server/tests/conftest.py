"""What holds for all tests of the server.

The broker contains what its parts raise, and so it would contain what a test's fake objects find wrong with it: an
`assert` in a fake token fails the test all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Contained(logging.Handler):
    """Keeps the failed assertions that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failed: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, AssertionError):
            self.failed.append(error)


@pytest.fixture(autouse=True)
def assertions_are_not_contained() -> Iterator[None]:
    handler = _Contained()
    logger = logging.getLogger("barnabas")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    if handler.failed:
        raise handler.failed[0]
