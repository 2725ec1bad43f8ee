"""`Visit`: one request, as pages see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.server.console.avro.book import Book
from barnabas.server.console.web.fields import Fields

if TYPE_CHECKING:
    from barnabas.server.client.client import Client
    from barnabas.server.console.desk import Desk
    from barnabas.server.console.history import History


@dataclass(frozen=True, slots=True)
class Visit:
    """names: in the path. query, form: what was sent. now_ms: the wall clock. is_json: a machine asks, so texts are
    not cut as short. resume: the id of the last event that a browser has had of a stream it lost. history: of lags.
    book: of schemas.
    """

    desk: Desk
    names: Mapping[str, str]
    query: Fields
    form: Fields
    now_ms: int
    history: History
    is_json: bool = False
    resume: str = ""
    book: Book = field(default_factory=Book)

    @property
    def client(self) -> Client:
        return self.desk.client
