"""Principals: who a connection speaks for, in Kafka's notation `type:name`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """`kind`: "User" for all that the broker makes itself; `name`: any text, colons and commas included."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """The value of `User:alice`, split at the first colon. Raises ValueError where there is none."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"{text!r} is no principal: it should look like User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that has not authenticated."""
