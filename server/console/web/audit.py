"""A line in the log for each change that was asked for, whatever came of it:

    INFO  console.audit: #7 admin from 127.0.0.1: created topic orders, 3 partitions
    WARN  console.audit: #8 admin from 127.0.0.1: topics.delete {"topic": "orders"} was refused (403): …

Names and texts of strangers are written as JSON writes them, so no line can be forged. Each line has a number, so that
it is not taken for a repetition, of which the log leaves out some.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from itertools import count

log = logging.getLogger("barnabas.console.audit")


class Audit:
    """See the module."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def done(self, who: str, where: str, what: str) -> None:
        log.info(f"#{next(self._numbers)} %s from %s: %s", _plain(who), where, _plain(what))

    def refused(self, who: str, where: str, page: str, names: Mapping[str, str], status: int, why: str) -> None:
        log.warning(
            f"#{next(self._numbers)} %s from %s: %s %s was refused (%d): %s",
            _plain(who),
            where,
            page,
            json.dumps(dict(names)),
            status,
            _plain(why),
        )


def _plain(text: str) -> str:
    """On one line, and without what a terminal obeys."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
