"""Java's properties format: the text of a server.properties file as keys and values.

Rules (java.util.Properties.load): `#` or `!` starts a comment line; a key ends at the first unescaped `=`, `:` or
blank; blanks around the separator do not count, blanks at the end of the value do; a line that ends in an odd number of
backslashes continues in the next one, whose leading blanks are dropped; `\\t \\n \\r \\f \\uXXXX` are escapes and any
other escaped character stands for itself. Java reads the file as Latin-1; UTF-8 is tried first, as people write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile("\r\n|\r|\n")


class PropertiesError(ValueError):
    """The text is not in the format; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int


def decode_properties(data: bytes) -> str:
    """File bytes as text."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> list[Property]:
    """All entries in order, repeated keys included (in Java the last one counts). Raises PropertiesError."""
    entries = []
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        entries.append(Property(_unescape(line[:key_end], number), _unescape(line[value_start:], number), number))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and empty ones, continuations joined; with the number of their first line."""
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if parts:
        yield first, "".join(parts)


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key_end = min(position, len(line))
    value_start = key_end
    while value_start < len(line) and line[value_start] in _BLANKS:
        value_start += 1
    if value_start < len(line) and line[value_start] in "=:":
        value_start += 1
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
    return key_end, value_start


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = "".join(next(characters, "") for _ in range(4))
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise PropertiesError(line, f"\\u needs four hexadecimal digits, not {digits!r}")
        out.append(chr(int(digits, 16)))
    # Java's characters are UTF-16 units: two escapes may make up one character
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
