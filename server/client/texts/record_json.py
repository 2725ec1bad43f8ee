"""A record as JSON, both ways: `barnabas consume` prints it, `produce --json` reads it, the console exports it.

A record is a line: topic, partition, offset, timestamp (ms), time, key, value, headers (pairs of name and value). Bytes
that are not UTF-8 stand in base64 under the name with `_base64` instead: `value_base64`. What is read must say the
value, null too, and nothing that is not known here: JSON that is no record would be a record without a value otherwise.
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
_FIELDS: Final = (
    *("topic", "partition", "offset", "timestamp", "time"),
    *("key", "key_base64", "value", "value_base64", "headers"),
)
_OF_A_HEADER: Final = ("name", "value", "value_base64")
_EXPECTED: Final = {
    "Expecting value": "a value is expected there",
    "Expecting property name enclosed in double quotes": "the name of a field in double quotes is expected there",
    "Expecting ':' delimiter": "a colon is expected there",
    "Expecting ',' delimiter": "a comma, or the end of the object or list, is expected there",
    "Illegal trailing comma before end of object": "a comma too many stands there",
    "Illegal trailing comma before end of array": "a comma too many stands there",
    "Extra data": "the record ends before that, and a line is one record",
    "Unterminated string starting at": "the text that begins there has no end",
    "Invalid control character at": "a control character stands there, which must be written as an escape",
    "Invalid \\escape": "this is no escape",
    "Invalid \\uXXXX escape": "four hexadecimal digits are expected there",
}
"""What Python's parser says, by its messages, as people say it."""


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
    ValueError with what is wrong, in words.
    """
    document = _parsed(line)
    if not isinstance(document, dict):
        raise ValueError(f"an object is expected, not {_kind(document)}; {_AS_VALUE}")
    if "value" not in document and "value_base64" not in document:
        have = ", ".join(_short(name) for name in document) or "none"
        raise ValueError(f"no field value or value_base64 (have: {have}); {_AS_VALUE}")
    _only(document, _FIELDS, "")
    headers = document.get("headers", [])
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list):
        raise ValueError("headers must be a list, or an object")
    pairs = []
    for each in headers:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise ValueError("headers must have names")
        which = f" in header {_short(each['name'])}"
        _only(each, _OF_A_HEADER, which)
        if "value" not in each and "value_base64" not in each:
            raise ValueError(f"no field value or value_base64{which}")
        pairs.append((each["name"], _from_text(each, "value", which)))
    timestamp = document.get("timestamp")
    is_time = isinstance(timestamp, int) and not isinstance(timestamp, bool) and 0 <= timestamp < 1 << 63
    if timestamp is not None and not is_time:
        raise ValueError("timestamp must be milliseconds")
    return ToSend(topic, _from_text(document, "value"), _from_text(document, "key"), tuple(pairs), None, timestamp)


_AS_VALUE: Final = "to send JSON as the value leave --json out"


def _parsed(line: bytes) -> Any:
    """Raises ValueError, with characters counted in the line from 1 on."""
    if not line.strip():
        raise ValueError("a record is expected, and the line is empty")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is no UTF-8") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        said = _EXPECTED.get(error.msg, error.msg)
        raise ValueError(f"no JSON from character {error.pos + 1} on: {said}; {_AS_VALUE}") from None
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None


def _kind(document: object) -> str:
    if isinstance(document, list):
        return "a list"
    if isinstance(document, str):
        return "a text"
    return "a number" if isinstance(document, (int, float)) and not isinstance(document, bool) else _short(document)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _only(document: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [_short(name) for name in document if name not in known]
    if unknown:
        raise ValueError(f"unknown field {', '.join(unknown)}{where}; known are {', '.join(known)}")


def _from_text(document: dict[str, Any], name: str, where: str = "") -> bytes | None:
    base64 = f"{name}_base64"
    if base64 in document:
        if name in document:
            raise ValueError(f"{name} and {base64} both{where}; which is meant?")
        if not isinstance(document[base64], str):
            raise ValueError(f"{base64} must be text{where}")
        try:
            return b64decode(document[base64], validate=True)
        except ValueError:
            raise ValueError(f"{base64} is no base64{where}") from None
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
