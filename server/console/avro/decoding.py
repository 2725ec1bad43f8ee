"""Bytes by an Avro schema as JSON, by fastavro. Without bounds of its own: it runs in `worker.py`, which has them.

Hostile bytes can make fastavro fill the memory (an array of 2^60 nulls is ten bytes), take minutes (a decimal of a
megabyte) or crash (a list that is 5,000 deep), and a hostile schema likewise.

What JSON has no word for: bytes and fixed are hexadecimal digits; dates and times are texts of ISO 8601, which can be
compared; decimals are numbers where a double has them exactly, else texts; NaN and infinities are texts. A date that no
calendar has is shown as its number. Unions are shown as the value alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any, Final, NamedTuple
from uuid import UUID

FRAME_BYTES: Final = 5
"""Of Confluent's framing: a zero, and the id of a schema in a registry."""
NO_ROOM: Final = "the schema would take too much memory"
_DATUM: Final = "barnabas_datum"


class NotAvro(Exception):
    """These bytes, or this schema, cannot be understood; the text says why."""


class Schema(NamedTuple):
    """Ready to decode with. `plain`: the same without logical types."""

    full: Any
    plain: Any


class Attempt(NamedTuple):
    """A schema to try, on the bytes from `skip` on."""

    schema: Schema
    skip: int


def compiled(texts: Sequence[str]) -> Schema:
    """texts: of a schema, before it those whose types it names. Raises NotAvro."""
    try:
        documents = [_document(text) for text in texts]
        return Schema(_parsed(documents), _parsed([_without_logic(each) for each in documents]))
    except RecursionError:
        raise NotAvro("the schema is nested too deep") from None


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if text.strip().isidentifier():  # "string" without quotes, as registries of old gave it
            return text.strip()
        raise NotAvro("the schema is no JSON") from None


def _parsed(documents: Sequence[Any]) -> Any:
    from fastavro import parse_schema

    # fastavro hands on the names of others for records only; one around the datum adds no byte to it.
    *others, main = documents
    datum = {"type": "record", "name": _DATUM, "fields": [{"name": _DATUM, "type": main}]}
    named: dict[str, Any] = {}
    found: Any = None
    for document in [*others, datum]:
        try:
            found = parse_schema(document, named_schemas=named)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:  # of fastavro, and what it meets in a strange document
            raise NotAvro(f"the schema is not Avro's: {_words(error)}") from None
    return found


def _without_logic(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _without_logic(value) for key, value in document.items() if key != "logicalType"}
    return [_without_logic(each) for each in document] if isinstance(document, list) else document


def decoded(attempts: Sequence[Attempt], data: bytes, *, is_pretty: bool = False) -> tuple[int, str]:
    """(which attempt, JSON): the first one that takes exactly these bytes. Raises NotAvro with the reason of the first
    one, MemoryError.
    """
    first: NotAvro | None = None
    for number, (schema, skip) in enumerate(attempts):
        try:
            return number, _text(schema, data[skip:], is_pretty)
        except NotAvro as error:
            first = first or error
    raise first or NotAvro("there is no schema")


def _text(schema: Schema, data: bytes, is_pretty: bool) -> str:
    try:
        try:
            value = _read(schema.full, data)
        except (ValueError, OverflowError, ArithmeticError, TypeError):
            value = _read(schema.plain, data)
        return json.dumps(_plain(value), ensure_ascii=False, indent=2 if is_pretty else None)
    except (NotAvro, MemoryError):
        raise
    except (EOFError, IndexError):
        raise NotAvro("it is not of this schema: it ends too soon, or has a branch that the schema has not") from None
    except RecursionError:
        raise NotAvro("it is nested too deep") from None
    except Exception as error:
        raise NotAvro(f"it is not of this schema: {_words(error)}") from None


def _read(schema: Any, data: bytes) -> Any:
    from fastavro import schemaless_reader

    stream = BytesIO(data)
    value: Any = schemaless_reader(stream, schema, None)
    if stream.tell() != len(data):
        raise NotAvro(f"it is not of this schema: {len(data) - stream.tell():,} bytes are left over")
    return value[_DATUM]


_SHOWN: Final[dict[type, Callable[[Any], Any]]] = {
    bytes: bytes.hex,
    UUID: str,
    float: lambda value: value if math.isfinite(value) else str(value),
    Decimal: lambda value: _number(value),
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
}


def _plain(value: Any) -> Any:
    """With words of JSON only."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    shown = _SHOWN.get(type(value))
    if shown is not None:
        return shown(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _number(value: Decimal) -> float | str:
    if value.is_finite() and abs(value.adjusted()) < 16 and Decimal(repr(float(value))) == value:
        return float(value)
    return str(value)


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{text[:160]} ({type(error).__name__})" if text else type(error).__name__
