"""Error codes in answers, counted by API as Apache Kafka counts them: one for each topic, partition or group that has
its own.

Where in an answer they are is read from its schema: fields called `error_code`, and their like, at any depth. Answers
without errors, nearly all, cost a comparison for each place. Answers of fast paths are not looked at: they have none.

Not counted, other than by Apache Kafka: NONE.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import response_class

_CODE_FIELDS: Final = frozenset(("error_code", "partition_error_code", "topic_error_code"))

OTHER: Final = "OTHER"


class ErrorCounts:
    """By name of the API and of the error. Answers may be encoded in threads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def watched(self, key: ApiKey, name: str, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`encode` for answers of an API, counting the errors in them."""
        codes_of = _codes_of(response_class(key).__description__.struct)
        if codes_of is None:
            return encode

        def encode_and_count(response: Any) -> Any:
            for code in codes_of(response):
                with self._lock:
                    self._counts[name, code] += 1
            return encode(response)

        return encode_and_count

    def items(self) -> list[tuple[str, str, int]]:
        """(API, error, count), sorted."""
        with self._lock:
            counts = dict(self._counts)
        return sorted((name, _name_of(code), count) for (name, code), count in counts.items())

    def of(self, name: str, *codes: ErrorCode) -> int:
        """How often an API was answered with one of these errors."""
        with self._lock:
            return sum(self._counts[name, int(code)] for code in codes)


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return OTHER


_Walk = Callable[[Any], Iterator[int]]


def _codes_of(struct: Any) -> _Walk | None:
    """What yields the error codes of a message with these fields that are not NONE; None: it has no such field."""
    names: list[str] = []
    inner: list[tuple[str, bool, _Walk]] = []
    for field in struct.fields:
        if field.name in _CODE_FIELDS and not field.is_array:
            names.append(field.name)
        elif field.struct is not None:
            walk = _codes_of(field.struct)
            if walk is not None:
                inner.append((field.name, field.is_array, walk))
    if not names and not inner:
        return None

    def codes(message: Any) -> Iterator[int]:
        for name in names:
            code = getattr(message, name)
            if code:
                yield int(code)
        for name, is_array, walk in inner:
            value = getattr(message, name)
            if value is None:
                continue
            if is_array:
                for one in value:
                    yield from walk(one)
            else:
                yield from walk(value)

    return codes
