"""The OpenAPI file (3.1) of the console's JSON, out of the table of pages: `/openapi.json`.

It says which paths there are, what their names and queries are, and what can be changed; the data of each page is
shown by example in docs/console.md, not by a schema.
"""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.server.console.routes import PAGES, Page

_PAGED: Final = ("page", "q", "sort")
_SEARCH: Final = ("from", "at", "text", "key", "header", "json", "partition", "count", "as", "committed", "go")
_ACL: Final = ("principal", "host", "permission", "operation", "resource", "name", "pattern")
_ENTITY: Final = ("user", "client-id", "ip", "user-default", "client-id-default", "ip-default")
QUERIES: Final[dict[str, tuple[str, ...]]] = {
    "topics": (*_PAGED, "internal"),
    "topics.partitions": ("page",),
    "topics.groups": ("page",),
    "topics.settings": ("q", "set"),
    "topics.move": ("brokers", "replicas", "page"),
    "topics.records": _SEARCH,
    "topics.export": (*_SEARCH, "records"),
    "topics.live": ("text", "key", "header", "json", "partition"),
    "topics.events": ("text", "key", "header", "json", "partition", "from"),
    "topics.record": ("partition", "offset", "as", "part"),
    "topics.produce": ("partition", "offset"),
    "topics.transactions": ("page",),
    "groups": (*_PAGED, "state"),
    "groups.lag": ("page", "sort"),
    "groups.reset": ("topic", "partition", "to", "at"),
    "transactions": ("page", "q", "state"),
    "access.acls": ("page", "q"),
    "access.delete-acl": _ACL,
    "access.delete-user": ("user", "mechanism"),
    "access.delete-quota": (*_ENTITY, "limit"),
    "access.tokens": ("page", "q"),
    "access.end-token": ("id",),
    "overview.moves": ("page",),
    "overview.leaders": ("page",),
    "overview.directories": ("page",),
    "overview.settings": ("q", "set"),
    "overview.loggers": ("q", "set"),
}
FORMS: Final[dict[str, tuple[str, ...]]] = {
    "topics.new": ("name", "partitions", "replicas", "settings", "check"),
    "topics.partitions": ("partitions",),
    "topics.settings": ("name", "value", "default"),
    "topics.move": ("assignment", "rate"),
    "topics.delete": ("confirm", "what", "before", "partition"),
    "topics.avro": ("part", "schema", "forget"),
    "topics.produce": ("key", "key_as", "value", "value_as", "headers", "partition", "lines"),
    "topics.transactions": ("partition", "producer_id", "start_offset"),
    "groups.reset": ("topic", "positions"),
    "groups.delete": ("confirm", "topic"),
    "access.acls": _ACL,
    "access.delete-acl": _ACL,
    "access.users": ("user", "mechanism", "password"),
    "access.delete-user": ("user", "mechanism", "confirm"),
    "access.delete-quota": (*_ENTITY, "limit"),
    "access.quotas": (*_ENTITY, "limit", "value"),
    "access.tokens": ("do", "owner", "renewers", "lifetime", "id"),
    "access.end-token": ("id", "confirm"),
    "overview.moves": ("topic", "partition", "do", "rate"),
    "overview.leaders": ("topic", "partitions"),
    "overview.settings": ("name", "value", "default"),
    "overview.loggers": ("name", "value", "default"),
}


def document(version: str) -> dict[str, Any]:
    """version: of the program."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas console",
            "version": version,
            "description": (
                "Names in paths: what is not a letter, a digit, `.`, `_` or `-` is `~` and two hexadecimal digits for "
                "each byte of UTF-8. A POST needs the cookie of a visit and its `token`, which every answer to a GET "
                "holds, in the form or in the header `X-CSRF-Token`."
            ),
        },
        "paths": {(page.json_path if page.is_json_too else page.path): _operations(page) for page in PAGES},
    }


def _operations(page: Page) -> dict[str, Any]:
    names = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", page.path)
    ]
    queries = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in QUERIES.get(page.name, ())]
    kind = "application/json"
    if not page.is_json_too:
        kind = "text/event-stream" if page.name == "topics.events" else "application/x-ndjson"
    failed = {"description": "what was not understood, not allowed, not there, or not to be had from the brokers"}
    answers = {"200": {"description": page.summary, "content": {kind: {}}}, "default": failed}
    found: dict[str, Any] = {
        "get": {
            "operationId": page.name,
            "summary": page.summary,
            "parameters": [*names, *queries],
            "responses": answers,
        }
    }
    if page.change is not None:
        fields = {name: {"type": "string"} for name in (*FORMS[page.name], "token")}
        form = {"schema": {"type": "object", "properties": fields}}
        found["post"] = {
            "operationId": f"{page.name}.change",
            "summary": page.summary,
            "parameters": names,
            "requestBody": {"required": True, "content": {"application/x-www-form-urlencoded": form}},
            "responses": answers,
        }
    return found
