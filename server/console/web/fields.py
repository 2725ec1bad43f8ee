"""What a query or a form says: fields by name, each looked at when a page asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl

FIELDS_MAX: Final = 20_000


class Unclear(Exception):
    """A field cannot be used; the text says which is expected. `field`: its name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class Fields:
    """Pairs of name and text, in order."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """From `a=1&b=2`. Raises Unclear for more than anybody sends, and for what is not UTF-8: Kafka's names are."""
        try:
            text = data.decode()
            return cls(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
        except UnicodeDecodeError:
            raise Unclear("", "the fields are not UTF-8") from None
        except ValueError:
            raise Unclear("", f"there are more than {FIELDS_MAX:,} fields") from None

    def text(self, name: str, default: str = "") -> str:
        """The first of this name, without blanks around it."""
        return self.raw(name, default).strip()

    def raw(self, name: str, default: str = "") -> str:
        """The first of this name, as it was typed, with the ends of its lines as `\\n`: forms send `\\r\\n`."""
        for each, value in self.pairs:
            if each == name:
                return value.replace("\r\n", "\n")
        return default

    def many(self, name: str) -> list[str]:
        """All of this name that are not blank."""
        return [value for each, value in self.pairs if each == name and value.strip()]

    def has(self, name: str) -> bool:
        """A box that was ticked, a button that was pressed."""
        return any(each == name for each, _ in self.pairs)

    def number(self, name: str, default: int, *, least: int = 0, most: int = (1 << 63) - 1) -> int:
        """Raises Unclear."""
        text = self.text(name).replace(",", "").replace("_", "")
        if not text:
            return default
        if re.fullmatch("[+-]?[0-9]{1,19}", text) is None or not least <= int(text) <= most:
            limits = f"from {least:,} to {most:,}" if most < 1 << 62 else f"of {least:,} or more"
            raise Unclear(name, f"{name}: a number {limits} is expected, not {text[:40]!r}")
        return int(text)

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """One of these; the first one if there is none. Raises Unclear."""
        every = list(choices)
        text = self.text(name) or every[0]
        if text not in every:
            raise Unclear(name, f"{name}: one of {', '.join(every)} is expected, not {text[:40]!r}")
        return text
