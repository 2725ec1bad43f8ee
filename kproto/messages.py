"""Requests and responses as classes, made when they are first asked for: `from barnabas.kproto.messages import
FetchRequest, FetchResponse`.

One class per message for all its versions; nested structures are attributes (`FetchResponse.PartitionData`). Fields
are Kafka's names in snake_case. `messages.pyi` declares them all for type checkers; `python -m barnabas.kproto stubs`
writes it. Keywords only, every field has Kafka's default.
"""

import re
from functools import cache
from pathlib import Path

from barnabas.kproto.apikeys import ApiKey
from barnabas.kproto.classes import Message, Record, message_class
from barnabas.kproto.notation import SCHEMA_DIR, Versions, parse, parse_line_of_versions

__all__ = ["Message", "Record", "flexible_from", "request_class", "response_class", "schema_versions"]


def request_class(api_key: int) -> type[Message]:
    """The request's class; ValueError for a key without schema."""
    return _classes(ApiKey(api_key))[0]


def response_class(api_key: int) -> type[Message]:
    """The response's class; ValueError for a key without schema."""
    return _classes(ApiKey(api_key))[1]


def schema_versions(api_key: int) -> tuple[int, int]:
    """First and last version the schema describes: the union of Apache Kafka 3.9's and 4.3's. ValueError for a key
    without schema.
    """
    versions = _head(ApiKey(api_key))[0]
    return versions.first, versions.last


def flexible_from(api_key: int) -> int | None:
    """The first version with compact types and tagged fields, or None. ValueError for a key without schema."""
    return _head(ApiKey(api_key))[1]


def schema_file(api_key: ApiKey) -> Path:
    return SCHEMA_DIR / f"{api_key:02d}_{api_key.name.lower()}.api"


@cache
def _head(api_key: ApiKey) -> tuple[Versions, int | None]:
    with schema_file(api_key).open(encoding="utf-8") as file:
        _, versions, flexible = parse_line_of_versions(file.readline())
    return versions, flexible


@cache
def _classes(api_key: ApiKey) -> tuple[type[Message], type[Message]]:
    request, response = (message_class(description, __name__) for description in parse(schema_file(api_key)))
    globals()[request.__name__] = request
    globals()[response.__name__] = response
    return request, response


def __getattr__(name: str) -> type[Message]:
    stem = re.fullmatch(r"([A-Z][A-Za-z0-9]*)(Request|Response)", name)
    if stem is not None:
        key = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem[1]).upper()
        if key in ApiKey.__members__:
            for cls in _classes(ApiKey[key]):
                if cls.__name__ == name:
                    return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
