"""The shared cases: each is a function of a client adapter and a maker of unused names, and serves every library.

`@case(area, title)` marks one; `needs` names what it needs of the library beyond the usual (see `Client.lacks`).
`CASES` in `compat_tests.cases.all_cases` is the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from compat_tests.harness.client import Client

Names = Callable[..., str]
Body = Callable[..., None]


@dataclass(frozen=True)
class Case:
    """A case: *body* is called with (client, names, *arguments)."""

    area: str
    title: str
    body: Body
    arguments: tuple[Any, ...] = ()
    needs: tuple[str, ...] = ()

    def run(self, client: Client, names: Names) -> None:
        """Run it; an exception is a failure."""
        self.body(client, names, *self.arguments)

    def reason_absent(self, client: Client | type[Client]) -> str | None:
        """Return why the client's library cannot express this case, None when it can."""
        return next((client.lacks[need] for need in self.needs if need in client.lacks), None)


def case(
    area: str,
    title: str,
    *,
    over: Iterable[Any] = (),
    needs: Iterable[str] = (),
    needs_value: bool = False,
) -> Callable[[Body], Body]:
    """Mark a function as a case, or as one case for each value in *over* (`{}` in the title is the value).

    With *needs_value* the value is itself the name of a feature that a library may lack.
    """

    def mark(body: Body) -> Body:
        values = tuple(over)
        made = [
            Case(area, title.format(value), body, (value,), (*needs, *([str(value)] if needs_value else [])))
            for value in values
        ] or [Case(area, title, body, (), tuple(needs))]
        body.cases = (*getattr(body, "cases", ()), *made)  # type: ignore[attr-defined]
        return body

    return mark


def cases_of(module: ModuleType) -> list[Case]:
    """Return the cases of a module in the order of their definition."""
    return [one for value in vars(module).values() for one in getattr(value, "cases", ())]
