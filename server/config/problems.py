"""Problems of settings, in sentences: refusals that prevent a start or a change, and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.server.settings.listener_keys import row_of

_SECRET = re.compile(r"passw|secret|passphrase|jaas|credential|token|private.?key|keystore", re.IGNORECASE)
_SHOWN_CHARACTERS = 200


class Notice(NamedTuple):
    """One warning about a setting, to be logged once the log is set up."""

    key: str
    text: str


class SettingsRefused(ValueError):
    """The settings cannot be used. `problems`: one sentence per key, naming key, value and what is allowed; `keys`: the
    refused ones; `notices`: warnings about other settings.
    """

    def __init__(self, problems: Iterable[str], *, keys: Iterable[str] = (), notices: Iterable[Notice] = ()) -> None:
        self.problems = tuple(problems)
        self.keys = frozenset(keys)
        self.notices = tuple(notices)
        super().__init__("\n".join(self.problems))


def shown(key: str, text: str | None) -> str:
    """A value for a log line or an error: secrets are hidden."""
    row = row_of(key)
    if text is None:
        return "null"
    if row.sensitive if row else _SECRET.search(key):
        return "[hidden]"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def refusal(key: str, text: str, why: str) -> str:
    """One sentence: key, value, and what is allowed (`why`, without a full stop)."""
    return f"{key}={shown(key, text)} is refused: {why}."
