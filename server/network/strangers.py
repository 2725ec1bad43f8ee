"""Peers that speak another protocol, recognized by their first bytes.

A browser, a health probe or a TLS client on a Kafka port sends what would be read as an absurd frame length. The log
names the protocol instead.
"""

from __future__ import annotations

from typing import Final

_METHODS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
"""The beginnings of HTTP/1 requests, and of HTTP/2 connections."""
_TLS_HANDSHAKE: Final = b"\x16\x03"


def name_stranger(start: bytes, listener: str) -> str | None:
    """The reason for closing a connection whose first four bytes are `start`; None: they may be Kafka's protocol."""
    if start in _METHODS:
        return f"HTTP request on listener {listener}, which speaks Kafka's protocol only"
    if start.startswith(_TLS_HANDSHAKE):
        return f"TLS client on listener {listener}, which is not encrypted (security.protocol=PLAINTEXT)"
    return None


def name_stranger_without_tls(start: bytes, listener: str) -> str | None:
    """The same for a listener with TLS; `start`: up to four bytes."""
    if start[:1] == _TLS_HANDSHAKE[:1]:
        return None
    if start in _METHODS:
        return f"HTTP request on listener {listener}, which speaks Kafka's protocol over TLS only"
    return f"client without TLS on listener {listener} (security.protocol=SSL or SASL_SSL)"
