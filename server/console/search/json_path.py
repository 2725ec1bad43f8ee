"""`$.user.id == 17`: a condition on a value that is JSON. A small part of JSONPath (RFC 9535), then one comparison.

| step | leads to |
| --- | --- |
| `.name`, `["any name"]` | the member of an object |
| `[0]`, `[-1]` | the element of an array |
| `.*`, `[*]` | all members or elements |
| `..name` | each member of that name, however deep |

Behind the path: nothing (it leads somewhere), or `==`, `!=`, `<`, `<=`, `>`, `>=` and a value, or `~` and a text that
must be part of it. Values are as in JSON; a word that is no JSON is a text. Of several places one suffices. Numbers are
compared with numbers and texts with texts; everything else is only equal or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

TEXT_MAX: Final = 500
BYTES_MAX: Final = 1024 * 1024
"""Of a value that is looked into; longer ones do not match."""
_STEP: Final = re.compile(
    r"""\.\.(?P<deep>[^\s.\[\]=<>!~"'*]+)"""
    r"""|\.(?P<name>[^\s.\[\]=<>!~"'*]+)"""
    r"""|\[\s*"(?P<quoted>(?:[^"\\]|\\.)*)"\s*\]"""
    r"""|\[\s*'(?P<single>[^']*)'\s*\]"""
    r"""|\[\s*(?P<index>-?[0-9]{1,9})\s*\]"""
    r"""|(?P<all>\.\*|\[\s*\*\s*\])"""
)
_TEST: Final = re.compile(r"\s*(?:(?P<sign>==|=(?!=)|!=|<=|>=|<(?!=)|>(?!=)|~)\s*(?P<value>.+?)\s*)?", re.DOTALL)
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}

_Step = Callable[[Any], Iterable[Any]]


class JsonPath:
    """See the module. Raises ValueError with what is wrong."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise ValueError(f"a path may have {TEXT_MAX} characters")
        rest = text.strip().removeprefix("$")
        if rest and rest[0] not in ".[=<>!~" and not rest[0].isspace():
            rest = f".{rest}"
        self._steps: list[_Step] = []
        at = 0
        while match := _STEP.match(rest, at):
            self._steps.append(_step(match))
            at = match.end()
        test = _TEST.fullmatch(rest, at)
        if test is None or not (self._steps or test["sign"]):
            raise ValueError(
                f"{text[:80]!r} cannot be read from {rest[at : at + 20]!r} on; for example $.user.id == 17"
            )
        self._sign: str | None = test["sign"]
        self._value = None if test["value"] is None else _value(test["value"])

    def is_in(self, data: bytes | None) -> bool:
        """Whether a record's value fulfils it; what is no JSON does not."""
        if data is None or len(data) > BYTES_MAX:
            return False
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return False
        return any(self._holds(each) for each in self._places(document))

    def _places(self, document: Any) -> Iterable[Any]:
        places: Iterable[Any] = [document]
        for step in self._steps:
            places = [found for place in places for found in step(place)]
        return places

    def _holds(self, found: Any) -> bool:
        wanted = self._value
        if self._sign is None:
            return True
        if self._sign == "~":
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
            return str(wanted if isinstance(wanted, str) else json.dumps(wanted)) in text
        if self._sign in _ORDERS:
            comparable = _is_number(found) and _is_number(wanted)
            comparable = comparable or (isinstance(found, str) and isinstance(wanted, str))
            return comparable and _ORDERS[self._sign](found, wanted)
        is_same = type(found) is type(wanted) or (_is_number(found) and _is_number(wanted))
        return (is_same and found == wanted) is (self._sign != "!=")


def _step(match: re.Match[str]) -> _Step:
    if match["deep"] is not None:
        name = match["deep"]
        return lambda place: _deep(place, name)
    if match["all"] is not None:
        return _every
    if match["index"] is not None:
        index = int(match["index"])
        return lambda place: [place[index]] if isinstance(place, list) and -len(place) <= index < len(place) else []
    key = match["name"] or match["single"] or ""
    if match["quoted"] is not None:
        try:
            key = json.loads(f'"{match["quoted"]}"')
        except ValueError:
            raise ValueError(f'"{match["quoted"][:80]}" is no text of JSON') from None
    return lambda place: [place[key]] if isinstance(place, dict) and key in place else []


def _every(place: Any) -> Iterable[Any]:
    if isinstance(place, dict):
        return list(place.values())
    return place if isinstance(place, list) else []


def _deep(place: Any, name: str) -> Iterator[Any]:
    left = [place]
    while left:
        each = left.pop()
        if isinstance(each, dict) and name in each:
            yield each[name]
        left += [inner for inner in _every(each) if isinstance(inner, (dict, list))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
