"""Routes: which function answers which method and path, and what it is given.

Paths are written as `/v1/faults/{id}`; a part in braces stands for one part of any text, which the route is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from barnabas.server.control.controlled import Controlled
from barnabas.server.control.fields import Fields

Json = Any
"""None, bool, int, float, str, and lists and dictionaries of these."""


class Refusal(Exception):
    """The caller is wrong; the message is one sentence that says how. status: of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Call(NamedTuple):
    """arguments: what stands for the parts of the path in braces. fields: those of the body, none without a body."""

    arguments: Mapping[str, str]
    fields: Fields


class Route(NamedTuple):
    """does: one sentence for people, without a full stop."""

    method: str
    path: str
    handle: Callable[[Controlled, Call], Awaitable[Json]]
    does: str


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(route.path.split("/"), route) for route in routes]

    @property
    def methods(self) -> list[str]:
        """All that any route has."""
        return sorted({route.method for _, route in self._routes})

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and the path's arguments. Raises Refusal."""
        parts = path.split("/")
        others = []
        for form, route in self._routes:
            arguments = _match(form, parts)
            if arguments is None:
                continue
            if route.method == method:
                return route, arguments
            others.append(route.method)
        if others:
            raise Refusal(f"{path} is asked with {' or '.join(sorted(others))}, not with {method}", 405)
        raise Refusal(f"there is no {path[:100]}; / lists what there is", 404)


def _match(form: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(form) != len(parts):
        return None
    arguments = {}
    for wanted, part in zip(form, parts, strict=True):
        if wanted.startswith("{"):
            arguments[wanted[1:-1]] = unquote(part)
        elif wanted != part:
            return None
    return arguments
