"""A schema registry (Confluent's REST API): `GET /schemas/ids/N`, and for what a schema refers to
`GET /subjects/S/versions/V`.

Ids never change their meaning, so what was found is kept (`KEPT_MAX`, `KEPT_CHARACTERS_MAX`); that there is no such id
for `ABSENT_S`, that the registry does not answer for `DOWN_S`, in which nobody waits for it again. Which ids are asked
for, whoever writes records says: what is wrong with one of them says nothing of the registry.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import trio

from barnabas.server.console.avro.process import Texts
from barnabas.server.httpd.http_client import NoDocument, Open, Place, TooLong, get, tcp

KEPT_MAX: Final = 500
KEPT_CHARACTERS_MAX: Final = 32 * 1024 * 1024
ABSENT_S: Final = 60.0
DOWN_S: Final = 10.0
TIMEOUT_S: Final = 4.0
BYTES_MAX: Final = 1024 * 1024
"""Of an answer; and characters of a schema with all that it refers to."""
REFERENCES_MAX: Final = 50
_OF_THE_SERVICE: Final = (401, 407, 408, 429)
"""Statuses of HTTP from 400 to 499 that say nothing of the document."""
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class NoSchema(Exception):
    """It is not to be had; the text says why."""


class Registry:
    """See the module. url: where it is. user: name and password with a colon between. Raises ValueError for what is
    no such URL.
    """

    def __init__(self, url: str, user: str | None = None, open_stream: Open = tcp) -> None:
        self.place = Place.of(url)
        self._user = user
        self._open = open_stream
        self._kept: OrderedDict[int, Texts | tuple[float, str]] = OrderedDict()
        self._down: tuple[float, str] | None = None
        self._lock = trio.Lock()

    def known(self, schema_id: int) -> bool:
        """Whether `schema` gives it without asking."""
        return isinstance(self._kept.get(schema_id), Texts)

    async def schema(self, schema_id: int) -> Texts:
        """At once if it is known, whoever else is waiting for another one. Raises NoSchema."""
        known = self._held(schema_id)
        if known is not None:
            return known
        async with self._lock:
            known = self._held(schema_id)  # it may have come meanwhile
            if known is not None:
                return known
            try:
                found: Texts | tuple[float, str] = await self._fetched(schema_id)
            except NoSchema as error:
                found = (trio.current_time() + ABSENT_S, str(error))
            except TooLong as error:
                found = (trio.current_time() + ABSENT_S, f"schema {schema_id}: the registry at {error}")
            except NoDocument as error:
                self._down = (trio.current_time() + DOWN_S, str(error))
                raise NoSchema(f"schema {schema_id}: the registry at {error}") from None
            self._kept[schema_id] = found
            while len(self._kept) > KEPT_MAX or _characters(self._kept.values()) > KEPT_CHARACTERS_MAX:
                self._kept.popitem(last=False)
            if isinstance(found, Texts):
                return found
            raise NoSchema(found[1])

    def _held(self, schema_id: int) -> Texts | None:
        """None: it is to be asked for. Raises NoSchema."""
        held = self._kept.get(schema_id)
        if isinstance(held, Texts):
            self._kept.move_to_end(schema_id)
            return held
        now = trio.current_time()
        if held is not None and now < held[0]:
            raise NoSchema(held[1])
        if self._down is not None and now < self._down[0]:
            raise NoSchema(f"schema {schema_id}: the registry at {self._down[1]}")
        return None

    async def _fetched(self, schema_id: int) -> Texts:
        """Raises NoSchema, NoDocument."""
        what = f"schema {schema_id}"
        main = await self._asked(f"/schemas/ids/{schema_id}", what)
        texts: dict[tuple[str, int], str] = {}
        await self._referred(main, texts, what, frozenset())
        return Texts((*texts.values(), _text(main, what)))

    async def _referred(
        self, document: dict[str, Any], texts: dict[tuple[str, int], str], what: str, above: frozenset[tuple[str, int]]
    ) -> None:
        """What it refers to, and before each what that refers to. Raises NoSchema, NoDocument."""
        references = document.get("references") or []
        for each in references if isinstance(references, list) else []:
            subject, version = (each.get("subject"), each.get("version")) if isinstance(each, dict) else (None, None)
            if not isinstance(subject, str) or not isinstance(version, int) or (subject, version) in above:
                raise NoSchema(f"{what}: the registry's references lead nowhere")
            if (subject, version) in texts:
                continue
            if len(texts) >= REFERENCES_MAX or len(above) >= REFERENCES_MAX:
                raise NoSchema(f"{what} refers to more than {REFERENCES_MAX} others")
            inner = await self._asked(f"/subjects/{quote(subject, safe='')}/versions/{version}", f"what {what} needs")
            await self._referred(inner, texts, what, above | {(subject, version)})
            texts[subject, version] = _text(inner, what)
            if sum(map(len, texts.values())) > BYTES_MAX:
                raise NoSchema(f"what {what} refers to is longer than {BYTES_MAX // 1024:,} KiB")

    async def _asked(self, path: str, what: str) -> dict[str, Any]:
        """Raises NoSchema, NoDocument."""
        found = await get(
            self.place,
            path,
            accept=_ACCEPT,
            timeout_s=TIMEOUT_S,
            bytes_max=BYTES_MAX,
            user=self._user,
            open_stream=self._open,
        )
        if found.status == 404:
            raise NoSchema(f"{what}: the registry at {self.place} has none")
        if 400 <= found.status < 500 and found.status not in _OF_THE_SERVICE:
            raise NoSchema(f"{what}: the registry at {self.place} does not give it (status {found.status})")
        if found.status != 200:
            raise NoDocument(f"{self.place} answered with status {found.status}")
        try:
            document = json.loads(found.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise NoDocument(f"{self.place} answered with what is no JSON object")
        return document


def _characters(kept: Iterable[Texts | tuple[float, str]]) -> int:
    return sum(len(text) for each in kept if isinstance(each, Texts) for text in each.all)


def _text(document: dict[str, Any], what: str) -> str:
    """Raises NoSchema."""
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise NoSchema(f"{what} is not of Avro but of {str(kind)[:40]}")
    text = document.get("schema")
    if not isinstance(text, str):
        raise NoSchema(f"{what}: the registry's answer has no schema")
    return text
