"""A record as JSON, both ways: `barnabas consume` prints it, `produce --json` reads it, the console exports it.

A record is a line: topic, partition, offset, timestamp (ms), time, key, value, headers (pairs of name and value). Bytes
that are not UTF-8 stand in base64 under the name with `_base64` instead: `value_base64`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from typing import Any, Final

from barnabas.server.client.batching import ToSend
from barnabas.server.client.reading import Read
from barnabas.server.client.texts.when import time_utc

_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""JSON may hold them as they are; some programs end a line there, and terminals obey."""


def json_format(record: Read) -> bytes:
    """A line."""
    text = json.dumps(document(record), ensure_ascii=False)
    return _UNPRINTABLE.sub(_escaped, text).encode("utf-8", "backslashreplace") + b"\n"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def document(record: Read) -> dict[str, Any]:
    """As `json_format`, before it is text."""
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_utc(record.timestamp),
        **named("key", record.key),
        **named("value", record.value),
    }
    if record.headers:
        found["headers"] = [{"name": name, **named("value", value)} for name, value in record.headers]
    return found


def named(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a field: under `name`, or in base64 under another one."""
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
