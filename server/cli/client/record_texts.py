"""Records as `barnabas consume` prints them: as text or hex; as JSON: `client/texts/record_json.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.server.cli.client.tables import printable
from barnabas.server.client.reading import Read
from barnabas.server.client.texts.when import time_here

_HEX_COLUMNS: Final = 16

Format = Callable[[Read], bytes]
"""A record as it is printed, with the end of its line."""


def text_format(*, key: bool, meta: bool, to_terminal: bool) -> Format:
    """The value as it is, after key and place if they are wanted. to_terminal: without what a terminal would obey."""

    def seen(data: bytes | None) -> bytes:
        if data is None:
            return b""
        return printable(data.decode("utf-8", "backslashreplace"), keep="\n\t").encode() if to_terminal else data

    def format_(record: Read) -> bytes:
        parts = []
        if meta:
            parts.append(f"{record.topic}-{record.partition}@{record.offset} {time_here(record.timestamp)}".encode())
        if key:
            parts.append(seen(record.key))
        return b"\t".join([*parts, seen(record.value)]) + b"\n"

    return format_


def hex_format(record: Read) -> bytes:
    """Where it is, then key, headers and value, sixteen bytes a line."""
    lines = [f"{record.topic}-{record.partition}@{record.offset} {time_here(record.timestamp)}"]
    parts = [("key", record.key), *((f"header {printable(name)}", value) for name, value in record.headers)]
    for name, data in [*parts, ("value", record.value)]:
        if data is None:
            lines.append(f"  {name}: null")
            continue
        lines.append(f"  {name}: {len(data)} bytes")
        for at in range(0, len(data), _HEX_COLUMNS):
            row = data[at : at + _HEX_COLUMNS]
            seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"    {at:08x}  {row.hex(' '):{_HEX_COLUMNS * 3 - 1}}  {seen}")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
