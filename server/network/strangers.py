"""Peers that do not speak Kafka's protocol at all: what the first bytes on a connection say about them.

A browser, a health probe or a TLS client on a Kafka port sends what would be read as an absurd frame length. The log
names it instead, and not for each try: probes come every second.
"""

from __future__ import annotations

from typing import Final

QUIET_S = 60.0
"""How long the log says nothing more of the same kind of stranger on the same listener."""

QUIET_LINES: Final = 256
"""So many are remembered."""

_METHODS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
"""How HTTP/1 requests begin, and HTTP/2 connections."""
_TLS_HANDSHAKE: Final = b"\x16\x03"


def name_stranger(start: bytes, listener: str) -> str | None:
    """What the peer is whose first four bytes are `start`, as the reason for closing its connection; None: unknown."""
    if start in _METHODS:
        return f"an HTTP request came to the listener {listener}, which speaks Kafka's protocol only"
    if start.startswith(_TLS_HANDSHAKE):
        return f"a TLS client came to the listener {listener}, which is not encrypted (security.protocol=PLAINTEXT)"
    return None


def name_stranger_without_tls(start: bytes, listener: str) -> str | None:
    """The same for a listener that is encrypted; `start`: as many of its first four bytes as came."""
    if start[:1] == _TLS_HANDSHAKE[:1]:
        return None
    if start in _METHODS:
        return f"an HTTP request came to the listener {listener}, which speaks Kafka's protocol over TLS only"
    return f"a client came to the listener {listener} without TLS (security.protocol=SSL or SASL_SSL)"


class Quiet:
    """Lets one of many equal lines through in `QUIET_S`."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, int]] = {}

    def due(self, line: str, now: float) -> int | None:
        """None: say nothing now. Otherwise say it, for itself and so many before it that were not said.

        `now`: seconds of any clock.
        """
        said_at, unsaid = self._since.get(line, (float("-inf"), 0))
        if now - said_at < QUIET_S:
            self._since[line] = (said_at, unsaid + 1)
            return None
        if len(self._since) >= QUIET_LINES:  # peers may have a say in what a line is
            self._since.clear()
        self._since[line] = (now, 0)
        return unsaid
