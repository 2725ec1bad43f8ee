"""Log lines that a peer can cause as often as it likes: one in `LOG_INTERVAL_S` of each text, the others counted."""

from __future__ import annotations

from typing import Final

LOG_INTERVAL_S = 60.0
"""The same text is logged once in this time."""

_TEXTS_MAX: Final = 256
"""Texts that are remembered."""


class LogThrottle:
    """Which of many equal log lines to write."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, int]] = {}

    def due(self, text: str, now: float) -> str | None:
        """None: do not log `text` now. Otherwise what to append to the line: how many lines like it were suppressed.

        `now`: seconds of any clock.
        """
        logged_at, suppressed = self._since.get(text, (float("-inf"), 0))
        if now - logged_at < LOG_INTERVAL_S:
            self._since[text] = (logged_at, suppressed + 1)
            return None
        if len(self._since) >= _TEXTS_MAX:  # a peer may influence the text
            self._since.clear()
        self._since[text] = (now, 0)
        return f" ({suppressed} more since the last message)" if suppressed else ""
