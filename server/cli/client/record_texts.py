"""Records as `barnabas consume` prints them and `barnabas produce --json` reads them.

JSON is a line for each record: topic, partition, offset, timestamp (ms), time, key, value, headers (pairs of name and
value). Bytes that are not UTF-8 stand in base64 under the name with `_base64` instead: `value_base64`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final

from barnabas.server.cli.client.tables import printable
from barnabas.server.cli.client.when import time_here, time_utc
from barnabas.server.client.batching import ToSend
from barnabas.server.client.reading import Read

_HEX_COLUMNS: Final = 16
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""JSON may hold them as they are; some programs end a line there, and terminals obey."""

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


def json_format(record: Read) -> bytes:
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_utc(record.timestamp),
        **_bytes("key", record.key),
        **_bytes("value", record.value),
    }
    if record.headers:
        document["headers"] = [{"name": name, **_bytes("value", value)} for name, value in record.headers]
    text = _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False))
    return text.encode("utf-8", "backslashreplace") + b"\n"


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


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def from_json(line: bytes, topic: str) -> ToSend:
    """A record out of a line as `json_format` writes it; partition, offset and topic in it are not looked at. Raises
    ValueError.
    """
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("an object is expected")
    headers = document.get("headers", [])
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    pairs = []
    for each in headers:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise ValueError("headers must have names")
        pairs.append((each["name"], _from_text(each, "value")))
    timestamp = document.get("timestamp")
    if timestamp is not None and (not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63):
        raise ValueError("timestamp must be milliseconds")
    return ToSend(topic, _from_text(document, "value"), _from_text(document, "key"), tuple(pairs), None, timestamp)


def _from_text(document: dict[str, Any], name: str) -> bytes | None:
    packed = document.get(f"{name}_base64")
    if packed is not None:
        if not isinstance(packed, str):
            raise ValueError(f"{name}_base64 must be text")
        return b64decode(packed, validate=True)
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
