"""Which records are wanted: text anywhere, in the key, in a header; a condition on a value that is JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.server.client.reading import Read
from barnabas.server.console.search.json_path import JsonPath
from barnabas.server.console.web.fields import Fields, Unclear

TEXT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Filter:
    """All that is not empty must hold. anywhere: part of key, value, or a header's value. header: `name`, or
    `name=text`. path: as `JsonPath`.
    """

    anywhere: str = ""
    key: str = ""
    header: str = ""
    path: str = ""

    @classmethod
    def of(cls, query: Fields) -> Filter:
        """From the fields of a search. Raises Unclear."""
        texts = [query.text(name) for name in ("text", "key", "header", "json")]
        for name, text in zip(("text", "key", "header", "json"), texts, strict=True):
            if len(text) > TEXT_MAX:
                raise Unclear(name, f"{name}: {TEXT_MAX} characters at most are expected")
        return cls(*texts)

    @property
    def is_empty(self) -> bool:
        return not (self.anywhere or self.key or self.header or self.path)

    def predicate(
        self, values: Callable[[], Mapping[tuple[int, int], bytes]] | None = None
    ) -> Callable[[Read], bool] | None:
        """Whether a record is wanted; None: all are. values(): by partition and offset, the JSON of those whose
        bytes are another form of it. Raises Unclear.
        """
        tests: list[Callable[[Read], bool]] = []
        if self.key:
            key = _data(self.key)
            tests.append(lambda record: key in (record.key or b""))
        if self.header:
            tests.append(_header(self.header))
        if self.anywhere:
            tests.append(_anywhere(_data(self.anywhere)))
        if self.path:
            try:
                path = JsonPath(self.path)
            except ValueError as error:
                raise Unclear("json", f"json: {error}") from None
            tests.append(_path(path, values))
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _anywhere(data: bytes) -> Callable[[Read], bool]:
    def test(record: Read) -> bool:
        return (
            data in (record.value or b"")
            or data in (record.key or b"")
            or any(data in (value or b"") for _, value in record.headers)
        )

    return test


def _path(path: JsonPath, values: Callable[[], Mapping[tuple[int, int], bytes]] | None) -> Callable[[Read], bool]:
    if values is None:
        return lambda record: path.is_in(record.value)
    return lambda record: path.is_in(values().get((record.partition, record.offset), record.value))


def _header(text: str) -> Callable[[Read], bool]:
    name, equals, part = text.partition("=")
    data = _data(part.strip())
    name = name.strip()

    def test(record: Read) -> bool:
        return any(each == name and (not equals or data in (value or b"")) for each, value in record.headers)

    return test
