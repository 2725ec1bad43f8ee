"""The file of a recording: a line of JSON for each thing that happened, in order, so that any tool can cut it.

    {"tape": "barnabas wire", "version": 1, "to": "localhost:9092"}
    {"at": 0.0, "connection": 1, "opened": "localhost:9092"}
    {"at": 0.000812, "connection": 1, "request": "<the frame in base64, without its length>"}
    {"at": 0.001731, "connection": 1, "answer": "<the same, as the broker sent it>"}
    {"at": 0.1, "connection": 1, "left_out": "SaslAuthenticate"}
    {"at": 2.5, "connection": 1, "closed": "client"}

`at`: seconds since the tap began. What proves who somebody is, is left out.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_NAME: Final = "barnabas wire"
_VERSION: Final = 1
OPENED, REQUEST, ANSWER, LEFT_OUT, CLOSED = "opened", "request", "answer", "left_out", "closed"
_KINDS: Final = (OPENED, REQUEST, ANSWER, LEFT_OUT, CLOSED)


class BadTape(ValueError):
    """A line is not what it should be; the message names it."""


class Entry(NamedTuple):
    """One thing that happened. kind: one of the five. frame: of requests and answers. text: of the others."""

    at: float
    connection: int
    kind: str
    frame: bytes = b""
    text: str = ""


def head(to: str) -> str:
    """The first line."""
    return json.dumps({"tape": _NAME, "version": _VERSION, "to": to}) + "\n"


def line(entry: Entry) -> str:
    """The line of an entry."""
    content = entry.text
    if entry.kind in (REQUEST, ANSWER):
        content = base64.b64encode(entry.frame).decode()
    return json.dumps({"at": round(entry.at, 6), "connection": entry.connection, entry.kind: content}) + "\n"


def read(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a tape. Raises BadTape."""
    is_first = True
    for number, text in enumerate(lines, 1):
        try:
            content = json.loads(text)
        except ValueError:
            raise BadTape(f"line {number} is not JSON") from None
        if not isinstance(content, dict):
            raise BadTape(f"line {number} is not an object")
        if is_first:
            is_first = False
            if content.get("tape") != _NAME:
                raise BadTape("it is no recording of `barnabas wire tap`")
            if content.get("version") != _VERSION:
                raise BadTape(f"its version is {content.get('version')!r}, and {_VERSION} is known")
            continue
        yield _entry(number, content)
    if is_first:
        raise BadTape("it is empty")


def _entry(number: int, content: dict[str, object]) -> Entry:
    at, connection = content.get("at"), content.get("connection")
    kinds = [kind for kind in _KINDS if kind in content]
    if not isinstance(at, (int, float)) or not isinstance(connection, int) or len(kinds) != 1:
        raise BadTape(f"line {number} is no entry")
    (kind,) = kinds
    text = content[kind]
    if not isinstance(text, str):
        raise BadTape(f"line {number}: {kind} is not text")
    if kind not in (REQUEST, ANSWER):
        return Entry(float(at), connection, kind, text=text)
    try:
        return Entry(float(at), connection, kind, base64.b64decode(text, validate=True))
    except NotBase64:
        raise BadTape(f"line {number}: {kind} is not base64") from None
