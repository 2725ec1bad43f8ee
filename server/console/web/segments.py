"""Names of topics and groups as parts of a path.

Group ids may be anything: `a/b`, `..`, empty. Slashes and dots do not survive browsers and proxies however they are
percent-encoded, so what is not a letter, a digit, `.`, `_` or `-` is `~` and two hexadecimal digits for each byte of
UTF-8. The empty name is `~`. Most names are themselves.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_ESCAPE: Final = re.compile(b"~([0-9A-Fa-f]{2})")


def segment(name: str) -> str:
    """A name as part of a path."""
    if not name:
        return "~"
    data = name.encode("utf-8", "replace")
    plain = frozenset[int]() if name in (".", "..") else _PLAIN
    return "".join(chr(byte) if byte in plain else f"~{byte:02X}" for byte in data)


def named(part: str) -> str:
    """The name in a part of a path. Raises ValueError."""
    if part == "~":
        return ""
    data = part.encode("utf-8", "replace")
    if b"~" in _ESCAPE.sub(b"", data):
        raise ValueError(f"{part!r}: ~ must be followed by two hexadecimal digits")
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), data).decode()
