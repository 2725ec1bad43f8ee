"""A message as JSON, for people: fields of its version, errors by name, ids as text, records as a summary; and what is
odd about its content.

Long arrays, texts and bytes are cut, unless everything is wanted. Secrets are never shown: what proves who somebody is,
and values of settings whose name says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final, NamedTuple

from barnabas.kproto import ErrorCode, Record, uuid_to_text
from barnabas.server.wire.batches import looked_at

HIDDEN: Final = "[hidden]"
SECRET_FIELDS: Final = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})
SECRET_SETTINGS: Final = re.compile(
    r"passw|secret|jaas|credential|token|private.?key|keystore|truststore", re.IGNORECASE
)
ODD_MAX: Final = 20


class Limits(NamedTuple):
    """How much is shown: items of an array, characters of a text, bytes."""

    items: int = 10
    characters: int = 200
    bytes: int = 32


EVERYTHING: Final = Limits(1 << 60, 1 << 60, 1 << 60)


class Seen(NamedTuple):
    """A message: `body` to be shown, `errors` by name, how long the client is held back, what is odd."""

    body: dict[str, Any]
    errors: Counter[str]
    throttle_ms: int
    odd: list[str]


def seen(message: Record, version: int, limits: Limits, *, is_answer: bool) -> Seen:
    """What there is to be said of a message."""
    looker = _Looker(version, limits, is_answer)
    body = looker.structure(message, "")
    throttle_ms = getattr(message, "throttle_time_ms", 0)
    odd = looker.odd[:ODD_MAX]
    if len(looker.odd) > ODD_MAX:
        odd.append(f"{len(looker.odd) - ODD_MAX} more of this kind")
    return Seen(body, looker.errors, throttle_ms, odd)


class _Looker:
    def __init__(self, version: int, limits: Limits, is_answer: bool) -> None:
        self._version = version
        self._limits = limits
        self._is_answer = is_answer
        self.errors: Counter[str] = Counter()
        self.odd: list[str] = []

    def structure(self, record: Record, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        name = getattr(record, "name", None) or getattr(record, "config_name", None)
        is_secret = isinstance(name, str) and SECRET_SETTINGS.search(name) is not None
        for field in record.__struct__.fields:
            if not field.versions.has(self._version):
                continue
            value = getattr(record, field.name)
            where = f"{path}.{field.name}" if path else field.name
            if field.name in SECRET_FIELDS or (is_secret and field.name == "value" and value is not None):
                shown[field.name] = HIDDEN
            elif field.type == "records":
                shown[field.name] = self._records(value, where)
            elif field.is_array:
                shown[field.name] = None if value is None else self._items(value, field.type, where)
            else:
                shown[field.name] = self._value(value, field.type, field.name, where)
        if record.unknown_tags:
            tags = {str(tag): self._bytes(data) for tag, data in record.unknown_tags.items()}
            shown["unknown_tags"] = tags
            self.odd.append(f"{path or 'the message'} has unknown tagged fields: {', '.join(tags)}")
        return shown

    def _items(self, values: list[Any], kind: str, path: str) -> list[Any]:
        # All are looked at, for their errors; some are shown.
        shown = [self._value(value, kind, "", f"{path}[{number}]") for number, value in enumerate(values)]
        if len(shown) <= self._limits.items:
            return shown
        return [*shown[: self._limits.items], f"… {len(shown) - self._limits.items} more"]

    def _value(self, value: Any, kind: str, name: str, path: str) -> Any:
        if isinstance(value, Record):
            return self.structure(value, path)
        if kind == "uuid" and isinstance(value, bytes):
            return uuid_to_text(value)
        if isinstance(value, str):
            cut = value[: self._limits.characters]
            return cut if len(cut) == len(value) else f"{cut}… ({len(value)} characters)"
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._bytes(bytes(value))
        if isinstance(value, float):
            return value if isfinite(value) else str(value)
        if name.endswith("error_code") and isinstance(value, int):
            return self._error(value, path)
        return value

    def _error(self, code: int, path: str) -> str:
        try:
            text = ErrorCode(code).name
        except ValueError:
            text = str(code)
            self.odd.append(f"{path} is {code}, which is no error code")
        if code:
            self.errors[text] += 1
        return text

    def _bytes(self, data: bytes) -> dict[str, Any]:
        shown: dict[str, Any] = {"bytes": len(data)}
        if data:
            shown["hex"] = data[: self._limits.bytes].hex()
        return shown

    def _records(self, value: Any, path: str) -> dict[str, Any] | None:
        if value is None:
            return None
        summary, faults = looked_at(value, may_be_cut=self._is_answer)
        self.odd += [f"{path}: {fault}" for fault in faults]
        return summary


def error_counts(message: Record) -> Counter[str]:
    """The errors in an answer, by name."""
    return Counter(_error_names(message))


def _error_names(record: Record) -> Iterator[str]:
    for field in record.__struct__.fields:
        value = getattr(record, field.name)
        if field.name.endswith("error_code") and isinstance(value, int):
            if value:
                yield ErrorCode(value).name if value in ErrorCode.__members__.values() else str(value)
        elif isinstance(value, Record):
            yield from _error_names(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Record):
                    yield from _error_names(each)
