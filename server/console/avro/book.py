"""Which schema a key or a value is decoded by, and what came of it.

| schema | counts for | before others |
| --- | --- | --- |
| given by a visitor (`/topics/T/avro`) | keys or values of that topic | first |
| of the registry | what begins with a zero and an id (Confluent's framing) | second |
| a file `T-key.avsc`, `T-value.avsc` | keys or values of topic T | last |

A schema that was given, or is a file's, is tried behind the framing where there is one, and on all bytes. Nothing is
guessed: it must take every byte. Where records are shown as what they are, what has no schema, or is not of it, stays
text or bytes; where Avro is asked for, it is said why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from barnabas.server.client.reading import Read
from barnabas.server.console.avro.decoding import FRAME_BYTES
from barnabas.server.console.avro.process import NOT_TRIED, TOTAL_S, Decoded, Decoder, Item, Texts
from barnabas.server.console.avro.registry import NoSchema, Registry

PARTS: Final = ("key", "value")
GIVEN_MAX: Final = 200
GIVEN_CHARACTERS_MAX: Final = 2 * 1024 * 1024
"""Of one log-in, of which there may be a thousand."""
SCHEMA_BYTES_MAX: Final = 256 * 1024
FETCHED_MAX: Final = 20
"""Schemas that one page, or one round of a search, has fetched."""
FETCH_S: Final = 8.0
SEARCH_S: Final = 15.0
"""Of decoding, in a step of a search."""
SEARCH_CHARACTERS: Final = 1024 * 1024
WHYS_MAX: Final = 3
FORMS: Final = ("auto", "avro")
"""In which records are looked at as Avro."""
NO_PACKAGE: Final = "Avro needs the package fastavro, which is not installed (extra [console])"

Place = tuple[int, int, str]
"""Partition, offset, and which part."""


class Source(NamedTuple):
    """`said`: what schema it is. `skip`: bytes before the datum. `id`: in the registry."""

    texts: Texts
    said: str
    skip: int = 0
    id: int | None = None


class Given:
    """Schemas that visitors gave, by topic and part."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, str], str] = {}

    def get(self, topic: str, part: str) -> str | None:
        return self._schemas.get((topic, part))

    def put(self, topic: str, part: str, text: str | None) -> bool:
        """None: forget it. False: there are too many already, or too long ones."""
        others = {place: each for place, each in self._schemas.items() if place != (topic, part)}
        if text is None:
            self._schemas = others
            return True
        if len(others) >= GIVEN_MAX or sum(map(len, others.values())) + len(text) > GIVEN_CHARACTERS_MAX:
            return False
        self._schemas[topic, part] = text
        return True


@dataclass(slots=True)
class Decodings:
    """What is Avro of some records, as it is shown. `count`: how many keys and values are not, that were to be; `why`:
    some of the reasons.
    """

    parts: dict[Place, dict[str, Any]] = field(default_factory=dict)
    count: int = 0
    why: list[str] = field(default_factory=list)

    def of(self, record: Read, part: str) -> dict[str, Any] | None:
        return self.parts.get((record.partition, record.offset, part))

    def missed(self, why: str) -> None:
        self.count += 1
        if why not in self.why and len(self.why) < WHYS_MAX:
            self.why.append(why)

    def told(self) -> dict[str, Any]:
        """For a page."""
        return {"not_decoded": self.count, "why": list(self.why)}


class Book:
    """See the module. decoder None: there is none. files: a directory of schemas."""

    def __init__(
        self, decoder: Decoder | None = None, files: Path | None = None, registry: Registry | None = None
    ) -> None:
        self._decoder = decoder
        self._files = files
        self._registry = registry
        self._read: dict[Path, tuple[tuple[int, int], str]] = {}

    @property
    def can_decode(self) -> bool:
        return self._decoder is not None

    @property
    def registry(self) -> str | None:
        """Where it is."""
        return None if self._registry is None else str(self._registry.place)

    def file(self, topic: str, part: str) -> str | None:
        """The name of the file that there is for this topic."""
        return None if self._file(topic, part) is None else f"{topic}-{part}.avsc"

    async def aclose(self) -> None:
        """Ends what decodes."""
        if self._decoder is not None:
            await self._decoder.aclose()

    async def check(self, text: str) -> str | None:
        """Why this is no schema; None: it is one."""
        return NO_PACKAGE if self._decoder is None else await self._decoder.check(Texts((text,)))

    def may_decode(self, given: Given, topic: str) -> bool:
        """Whether there is any schema for what this topic holds."""
        if self._decoder is None:
            return False
        return self._registry is not None or any(
            given.get(topic, part) is not None or self._file(topic, part) is not None for part in PARTS
        )

    async def decoded(
        self,
        records: Sequence[Read],
        given: Given,
        *,
        form: str,
        characters_max: int,
        is_pretty: bool = False,
        parts: Iterable[str] = PARTS,
        total_s: float = TOTAL_S,
        is_searched: bool = False,
    ) -> Decodings:
        """Keys and values of records of one topic. form: as they are to be shown; none is decoded but in `FORMS`.
        is_searched: what has Confluent's framing is no JSON as it is, so it is missed whatever the form.
        """
        found = Decodings()
        if form not in FORMS or not records:
            return found
        is_wanted = form == "avro"
        if self._decoder is None or not (is_wanted or self.may_decode(given, records[0].topic)):
            if is_wanted:
                found.why.append(NO_PACKAGE)
                found.count = sum((each.key is not None) + (each.value is not None) for each in records)
            return found
        places, items, sources = [], [], []
        fetched = _Fetched(self._registry, FETCH_S if total_s > 0 else 0.0)
        for record in records:
            for part in parts:
                data = record.key if part == "key" else record.value
                if data is None:
                    continue
                known, why = await self._sources(record.topic, part, data, given, fetched)
                if known:
                    places.append((record, part))
                    sources.append(known)
                    items.append(Item(data, tuple((each.texts, each.skip) for each in known)))
                elif (is_wanted and part == "value") or ((is_wanted or is_searched) and _framed(data) is not None):
                    found.missed(why)
        results = await self._decoder.decode(items, characters_max, is_pretty=is_pretty, total_s=total_s)
        for (record, part), known, result in zip(places, sources, results, strict=True):
            data = (record.key if part == "key" else record.value) or b""
            if isinstance(result, Decoded):
                found.parts[record.partition, record.offset, part] = _shown(known[result.which], data, result)
            elif is_wanted or result in NOT_TRIED or (is_searched and _framed(data) is not None):
                found.missed(f"{part}, by {known[0].said}: {result}")
        return found

    async def _sources(
        self, topic: str, part: str, data: bytes, given: Given, fetched: _Fetched
    ) -> tuple[list[Source], str]:
        """The schemas to try in turn; why there is none."""
        framed = _framed(data)
        found: list[Source] = []
        text = given.get(topic, part)
        if text is not None:
            found += _both(Texts((text,)), "the schema that was given", framed)
        why = f"{part}s of this topic have no schema: give one, or start the console with --avro-schemas"
        if framed is not None:
            why = f"schema {framed} stands in a schema registry: start the console with --schema-registry, or give it"
            if self._registry is not None:
                try:
                    source = Source(
                        await fetched.schema(framed), f"schema {framed} of the registry", FRAME_BYTES, framed
                    )
                    found.append(source)
                except NoSchema as error:
                    why = str(error)
        in_file = self._file(topic, part)
        if in_file is not None:
            found += _both(Texts((in_file,)), f"{topic}-{part}.avsc", framed)
        return found, why

    def _file(self, topic: str, part: str) -> str | None:
        """Its text. Read again when it has changed."""
        if self._files is None or "/" in topic or "\0" in topic:
            return None
        path = self._files / f"{topic}-{part}.avsc"
        try:
            facts = path.stat()
            version = (facts.st_mtime_ns, facts.st_size)
            held = self._read.get(path)
            if held is None or held[0] != version:
                if facts.st_size > SCHEMA_BYTES_MAX:
                    return None
                held = self._read[path] = (version, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            self._read.pop(path, None)
            return None
        return held[1]


class _Fetched:
    """The registry, as one page, or one round of a search, may use it."""

    def __init__(self, registry: Registry | None, total_s: float) -> None:
        self._registry = registry
        self._left = FETCHED_MAX
        self._deadline = trio.current_time() + total_s
        self._failed: dict[int, NoSchema] = {}

    async def schema(self, schema_id: int) -> Texts:
        """Raises NoSchema."""
        assert self._registry is not None
        if schema_id in self._failed:
            raise self._failed[schema_id]
        try:
            if not self._registry.known(schema_id):
                if not self._left:
                    raise NoSchema(f"more than {FETCHED_MAX} schemas are not fetched for one page: load it again")
                self._left -= 1
            with trio.fail_at(self._deadline):
                return await self._registry.schema(schema_id)
        except trio.TooSlowError:
            error = NoSchema("the registry took too long")
        except NoSchema as why:
            error = why
        self._failed[schema_id] = error
        raise error


def _framed(data: bytes) -> int | None:
    """The id of a schema, of what has Confluent's framing."""
    return int.from_bytes(data[1:FRAME_BYTES]) if len(data) >= FRAME_BYTES and data[0] == 0 else None


def _both(texts: Texts, said: str, framed: int | None) -> list[Source]:
    whole = [Source(texts, said)]
    return whole if framed is None else [Source(texts, said, FRAME_BYTES, framed), *whole]


def _shown(source: Source, data: bytes, result: Decoded) -> dict[str, Any]:
    return {
        "kind": "avro",
        "text": result.text,
        "size": len(data),
        "is_cut": result.is_cut,
        "schema": source.said,
        "schema_id": source.id,
    }


def has_package() -> bool:
    """Whether Avro can be decoded here."""
    return find_spec("fastavro") is not None


class Lens:
    """Values of a search's records as JSON, for a condition on them: `look` first, then `values`. `seen`: what could
    not be looked into. total_s: for all looks together; None: each has a time of its own.
    """

    def __init__(self, book: Book, given: Given, form: str, total_s: float | None = SEARCH_S) -> None:
        self._book = book
        self._given = given
        self._form = form
        self._deadline = None if total_s is None else trio.current_time() + total_s
        self.seen = Decodings()
        self.values: Mapping[tuple[int, int], bytes] = {}

    async def look(self, records: Sequence[Read]) -> None:
        """At what has just been read."""
        left_s = TOTAL_S if self._deadline is None else max(0.0, self._deadline - trio.current_time())
        found = await self._book.decoded(
            records,
            self._given,
            form=self._form,
            characters_max=SEARCH_CHARACTERS,
            parts=("value",),
            total_s=left_s,
            is_searched=True,
        )
        self.values = {
            (partition, offset): part["text"].encode() for (partition, offset, _), part in found.parts.items()
        }
        self.seen.count += found.count
        for why in found.why:
            if why not in self.seen.why and len(self.seen.why) < WHYS_MAX:
                self.seen.why.append(why)
