"""Bytes and records as they are shown: text, JSON or hexadecimal; long ones cut, and said so."""

from __future__ import annotations

import json
from base64 import b64encode
from codecs import getincrementaldecoder
from typing import Any, Final

from barnabas.server.client.reading import Read
from barnabas.server.client.texts.when import time_utc
from barnabas.server.console.avro.book import Decodings

FORMS: Final = ("auto", "text", "json", "avro", "hex")
LIST_CHARACTERS: Final = 400
"""Of a key or value in a list."""
JSON_CHARACTERS: Final = 100_000
"""Of the same for machines."""
WHOLE_CHARACTERS: Final = 1_000_000
"""Of one record on a page of its own."""
_COLUMNS: Final = 16
_CUT_FIRST: Final = 64


def shown(data: bytes | None, form: str, characters_max: int, *, is_pretty: bool = False) -> dict[str, Any]:
    """`kind`: null, json, text or hex; `text`; `size`: of all of it, in bytes; `is_cut`. form: one of FORMS; `auto`,
    and `avro` where it is not, is JSON for what is an object or an array, text for UTF-8 without control characters,
    otherwise hexadecimal.
    """
    if data is None:
        return {"kind": "null", "text": "", "size": 0, "is_cut": False}
    form = "auto" if form == "avro" else form
    if form != "hex" and len(data) > _CUT_FIRST * characters_max:  # so long that what is shown says nothing of the rest
        begin = data[: 4 * characters_max]
        text = _decoded(begin, is_whole=False)
        if text is None or (form == "auto" and _is_binary(text)):
            form = "hex" if form == "auto" else form
        if form != "hex":
            kind, text = "text", begin.decode("utf-8", "backslashreplace") if text is None else text
            return {"kind": kind, "text": text[:characters_max], "size": len(data), "is_cut": True}
    kind, text = ("hex", "") if form == "hex" else _as_text(data, form, is_pretty)
    if kind == "hex":
        limit = characters_max // 4 if is_pretty else characters_max // 3
        text = dump(data[:limit]) if is_pretty else data[:limit].hex(" ")
        return {"kind": kind, "text": text, "size": len(data), "is_cut": len(data) > limit}
    return {"kind": kind, "text": text[:characters_max], "size": len(data), "is_cut": len(text) > characters_max}


def _as_text(data: bytes, form: str, is_pretty: bool) -> tuple[str, str]:
    """(kind, text); (hex, "") for what is better shown so."""
    text = _decoded(data, is_whole=True)
    if text is None:
        return ("hex", "") if form == "auto" else ("text", data.decode("utf-8", "backslashreplace"))
    if form == "json" or (form == "auto" and text.lstrip()[:1] in ("{", "[")):
        try:
            document = json.loads(text)
            return "json", json.dumps(document, indent=2, ensure_ascii=False) if is_pretty else text
        except (ValueError, RecursionError):
            pass
    return ("hex", "") if form == "auto" and _is_binary(text) else ("text", text)


def _decoded(data: bytes, *, is_whole: bool) -> str | None:
    """None: it is not UTF-8. A cut may go through a character."""
    try:
        return getincrementaldecoder("utf-8")().decode(data, is_whole)
    except UnicodeDecodeError:
        return None


def _is_binary(text: str) -> bool:
    return any(character < " " and character not in "\t\n\r" for character in text)


def dump(data: bytes) -> str:
    """Sixteen bytes a line: where, hexadecimal, and what is ASCII of it."""
    lines = []
    for at in range(0, len(data), _COLUMNS):
        row = data[at : at + _COLUMNS]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):{_COLUMNS * 3 - 1}}  {seen}")
    return "\n".join(lines)


def record_row(
    record: Read, form: str, characters_max: int, *, is_pretty: bool = False, avro: Decodings | None = None
) -> dict[str, Any]:
    """A record for a page, and for machines. avro: what of it is Avro."""
    own = avro or Decodings()
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_utc(record.timestamp),
        "key": own.of(record, "key") or shown(record.key, form, characters_max, is_pretty=is_pretty),
        "value": own.of(record, "value") or shown(record.value, form, characters_max, is_pretty=is_pretty),
        "headers": [
            {"name": name, **shown(value, form, characters_max, is_pretty=is_pretty)} for name, value in record.headers
        ],
        "size": record.size,
        "codec": record.batch.codec,
        "producer_id": record.batch.producer_id if record.batch.producer_id >= 0 else None,
        "is_transactional": record.batch.is_transactional,
    }


def typed(data: bytes | None) -> tuple[str, str]:
    """(form, text) for the fields of a form from which exactly these bytes come back: `text`, `base64` or `null`.
    Browsers send the ends of lines as they like, so a carriage return makes it base64.
    """
    if data is None:
        return "null", ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64", b64encode(data).decode()
    if "\r" in text or any(character < " " and character not in "\t\n" for character in text):
        return "base64", b64encode(data).decode()
    return "text", text
