"""The fields of a JSON object that somebody sent: each is read once, by its kind; unknown ones are an error.

    fields = Fields.of(b'{"topic": "t", "times": 2}')
    topic, times = fields.text("topic"), fields.integer("times", least=1)
    fields.end()

Every method raises WrongField, whose message is one sentence that names the field and what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class WrongField(ValueError):
    """A body that cannot be used."""


class Fields:
    """See the module."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._left = dict(values)
        self._known: list[str] = []

    @classmethod
    def of(cls, body: bytes) -> Fields:
        """Of a JSON object; no bytes are an empty one."""
        if not body:
            return cls({})
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise WrongField("the body is not JSON") from None
        if not isinstance(found, dict):
            raise WrongField("the body must be a JSON object")
        return cls(found)

    def take(self, name: str) -> Any:
        """A field of any kind; None if it is not there."""
        self._known.append(name)
        return self._left.pop(name, None)

    def text(self, name: str, *, is_needed: bool = False) -> str | None:
        """A text, not empty; None if it is not there and not needed."""
        value = self.take(name)
        if value is None and not is_needed:
            return None
        if not isinstance(value, str) or not value:
            raise WrongField(f"{name} must be a text that is not empty, not {_shown(value)}")
        return value

    def integer(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int | None:
        """A whole number from `least` to `most`; None if it is not there."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise WrongField(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")
        return value

    def number(self, name: str, *, least: float, most: float) -> float | None:
        """A number from `least` to `most`; None if it is not there."""
        value = self.take(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:  # also of what is no number in between: NaN
            raise WrongField(f"{name} must be a number from {least:g} to {most:g}, not {_shown(value)}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; False if it is not there."""
        value = self.take(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise WrongField(f"{name} must be true or false, not {_shown(value)}")
        return value

    def end(self) -> None:
        """All fields were read: others must not be there."""
        if self._left:
            known = ", ".join(self._known) or "none"
            raise WrongField(f"there is no field {_shown(next(iter(self._left)))}; there are: {known}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
