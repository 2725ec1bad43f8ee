"""Records that are Avro: by a schema that was given, a file's, a registry's; filtered, followed; and why not."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("starlette")
pytest.importorskip("fastavro")

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client
from barnabas.server.client.producer import Producer
from barnabas.server.client.reading import BatchFacts, Read
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.avro.book import (
    GIVEN_CHARACTERS_MAX,
    GIVEN_MAX,
    NO_PACKAGE,
    SCHEMA_BYTES_MAX,
    Book,
    Given,
    Lens,
)
from barnabas.server.console.avro.registry import Registry
from barnabas.server.tests.console.avro_kit import ORDER, FakeRegistry, HereDecoder, encoded
from barnabas.server.tests.console.rig import Browser, checked, console, now_ms

HOSTILE = "<script>alert(1)</script>"
FACTS = BatchFacts("none", 2, -1, -1, False, False)


def order(number: int, customer: str = "Ada", schema_id: int | None = None) -> bytes:
    return encoded(ORDER, {"id": number, "customer": customer, "note": None}, schema_id)


@asynccontextmanager
async def place(
    *, files: Path | None = None, registry: Registry | None = None, decodes: bool = True, **options: Any
) -> AsyncIterator[tuple[Browser, Client]]:
    """A console of a broker with the topic `orders`, which is empty."""
    book = Book(HereDecoder() if decodes else None, files, registry)
    async with console(book=book, **options) as (browser, client):
        await create_topics(client, [NewTopic("orders", 1, 1)])
        yield browser, client


async def write(client: Client, *values: bytes | None, key: bytes | None = None) -> None:
    await Producer(client, now_ms).send([ToSend("orders", value, key, (), 0) for value in values])


async def test_a_schema_that_is_given(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with place() as (browser, client):
        await write(client, order(1), order(2, HOSTILE), b"no avro", None)
        before = await browser.get("/topics/orders/records?as=avro")
        checked(before)
        assert "Values of this topic have no schema: give one" in before.words
        form = await browser.get("/topics/orders/avro")
        checked(form)
        for text, why in ((" ", "text of a schema"), ("{", "no JSON"), ("x" * (SCHEMA_BYTES_MAX + 1), "256 KiB")):
            refused = await browser.post("/topics/orders/avro", {"part": "value", "schema": text})
            assert (refused.status, why in refused.words) == (422, True)
            checked(refused)
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            given = await browser.follow(await browser.post("/topics/orders/avro", {"part": "value", "schema": ORDER}))
        assert "gave an Avro schema for topic orders, values" in caplog.text
        assert '{"id": 1, "customer": "Ada", "note": null}' in given.words
        assert b"<script>alert" not in given.body
        rows = (await browser.get("/topics/orders/records.json?from=earliest")).json["records"]
        assert [each["value"]["kind"] for each in rows] == ["avro", "avro", "text", "null"]
        assert rows[0]["value"] == {
            "kind": "avro",
            "text": '{"id": 1, "customer": "Ada", "note": null}',
            "size": len(order(1)),
            "is_cut": False,
            "schema": "the schema that was given",
            "schema_id": None,
        }
        wanted = (await browser.get("/topics/orders/records.json?as=avro")).json
        assert wanted["avro"]["not_decoded"] == 1
        assert wanted["avro"]["why"][0].startswith("value, by the schema that was given: it is not of this schema")
        whole = await browser.get("/topics/orders/record?offset=0")
        checked(whole)
        assert '"customer": "Ada"' in whole.words
        assert "by the schema that was given" in whole.words
        assert (await browser.get("/topics/orders/record.json?offset=0&as=hex")).json["record"]["value"][
            "kind"
        ] == "hex"
        checked(await browser.get("/topics/orders/avro"))
        assert (await browser.post("/topics/orders/avro", {"part": "value", "forget": "1"})).status == 303
        rows = (await browser.get("/topics/orders/records.json?from=earliest")).json["records"]
        assert [each["value"]["kind"] for each in rows] == ["hex", "hex", "text", "null"]


async def test_a_condition_on_values(autojump_clock: MockClock, tmp_path: Path) -> None:
    (tmp_path / "orders-value.avsc").write_text(ORDER)
    async with place(files=tmp_path) as (browser, client):
        await write(client, *(order(number) for number in range(20)), b'{"id": 17}')
        for start in ("newest", "earliest"):
            found = (await browser.get(f"/topics/orders/records.json?from={start}&json=$.id==17")).json
            assert sorted(each["offset"] for each in found["records"]) == [17, 20]
            assert found["not_looked_into"] == {"not_decoded": 0, "why": []}
        export = await browser.get("/topics/orders/export?from=earliest&json=$.id>17&as=avro")
        assert [json.loads(line)["offset"] for line in export.body.splitlines()] == [18, 19]
        bytes_only = (await browser.get("/topics/orders/records.json?json=$.id==17&as=text")).json
        assert [each["offset"] for each in bytes_only["records"]] == [20]
        live = (await browser.get("/topics/orders/live.json?json=$.id==17")).json
        assert [each["value"]["kind"] for each in live["records"]] == ["json", "avro"]
        asked = await browser.get("/topics/orders/records?as=avro&json=$.id==17")
        checked(asked)
        assert "1 value could not be looked into: value, by orders-value.avsc" in asked.words


async def test_files_for_keys_and_values(autojump_clock: MockClock, tmp_path: Path) -> None:
    (tmp_path / "orders-key.avsc").write_text('"long"')
    (tmp_path / "orders-value.avsc").write_text("{")
    async with place(files=tmp_path) as (browser, client):
        await write(client, order(1, schema_id=5), key=b"\x02")
        (row,) = (await browser.get("/topics/orders/records.json")).json["records"]
        assert (row["key"]["text"], row["key"]["schema"], row["value"]["kind"]) == ("1", "orders-key.avsc", "hex")
        why = (await browser.get("/topics/orders/records.json?as=avro")).json["avro"]["why"]
        assert why == ["value, by orders-value.avsc: the schema is no JSON"]
        (tmp_path / "orders-value.avsc").write_text(ORDER)  # and is read again
        (row,) = (await browser.get("/topics/orders/records.json")).json["records"]
        assert (row["value"]["kind"], row["value"]["schema_id"]) == ("avro", 5)
        shown = await browser.get("/topics/orders/record?offset=0")
        assert "by orders-value.avsc, behind the id 5" in shown.words


async def test_a_registry(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(
            nursery, {"/schemas/ids/17": {"schema": ORDER}, "/schemas/ids/3": {"schema": "p", "schemaType": "PROTOBUF"}}
        )
        registry = Registry("http://registry:8081", open_stream=fake.open_stream)
        async with place(registry=registry) as (browser, client):
            await write(client, order(1, schema_id=17), order(2, schema_id=17), order(3, schema_id=4), b"\0\0\0\0\3x")
            seen = (await browser.get("/topics/orders/records.json?from=earliest&as=avro")).json
            assert [each["value"]["kind"] for each in seen["records"]] == ["avro", "avro", "hex", "hex"]
            assert seen["records"][0]["value"]["schema"] == "schema 17 of the registry"
            assert seen["records"][0]["value"]["schema_id"] == 17
            assert seen["avro"] == {
                "not_decoded": 2,
                "why": [
                    "schema 4: the registry at http://registry:8081 has none",
                    "schema 3 is not of Avro but of PROTOBUF",
                ],
            }
            await browser.get("/topics/orders/records")
            assert sorted(fake.asked) == ["/schemas/ids/17", "/schemas/ids/3", "/schemas/ids/4"]
            page = await browser.get("/topics/orders/avro")
            checked(page)
            assert "http://registry:8081" in page.words


async def test_what_a_search_could_not_look_into_is_said(autojump_clock: MockClock) -> None:
    """Also where records are shown as what they are."""
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {"/schemas/ids/17": (500, b""), "/schemas/ids/4": {"schema": '"long"'}})
        registry = Registry("http://registry:8081", open_stream=fake.open_stream)
        async with place(registry=registry) as (browser, client):
            await write(client, order(1, schema_id=4), order(1, schema_id=17), b"text", b'{"id": 1}')
            found = (await browser.get("/topics/orders/records.json?from=earliest&json=$.id==1")).json
            assert [each["offset"] for each in found["records"]] == [3]
            assert found["not_looked_into"]["not_decoded"] == 2
            assert "status 500" in found["not_looked_into"]["why"][0]
            assert found["avro"]["not_decoded"] == 0
            page = await browser.get("/topics/orders/records?from=earliest&json=$.id==1")
            assert "2 values could not be looked into" in page.words


async def test_a_search_whose_time_is_over_fetches_nothing(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {})
        book = Book(HereDecoder(), None, Registry("http://registry:8081", open_stream=fake.open_stream))
        lens = Lens(book, Given(), "auto", 0.0)
        await lens.look([Read("orders", 0, 0, 0, None, order(1, schema_id=17), (), FACTS)])
        assert (lens.seen.count, lens.seen.why, fake.asked) == (1, ["the registry took too long"], [])


async def test_one_page_does_not_fetch_without_end(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {})
        registry = Registry("http://registry:8081", open_stream=fake.open_stream)
        async with place(registry=registry) as (browser, client):
            await write(client, *(order(1, schema_id=number) for number in range(45)))
            seen = (await browser.get("/topics/orders/records.json?as=avro")).json
            assert seen["avro"]["not_decoded"] == 45
            assert len(fake.asked) == 20


async def test_what_is_needed_is_said(autojump_clock: MockClock) -> None:
    async with place() as (browser, client):
        await write(client, order(1, schema_id=17))
        asked = await browser.get("/topics/orders/record?offset=0&as=avro")
        checked(asked)
        assert (
            "Schema 17 stands in a schema registry: start the console with --schema-registry, or give it" in asked.words
        )
    async with place(decodes=False) as (browser, client):
        await write(client, order(1))
        assert NO_PACKAGE in (await browser.get("/topics/orders/records?as=avro")).words
        page = await browser.get("/topics/orders/avro")
        assert NO_PACKAGE in page.words
        refused = await browser.post("/topics/orders/avro", {"part": "value", "schema": ORDER})
        assert (refused.status, NO_PACKAGE in refused.words) == (422, True)


async def test_schemas_that_were_given_are_bounded(autojump_clock: MockClock) -> None:
    async with place() as (browser, client):
        await browser.get("/topics/orders/avro")
        given = browser.app._desk.given
        for number in range(GIVEN_MAX):
            assert given.put(f"t{number}", "value", "x")
        assert not given.put("t0", "value", "x" * GIVEN_CHARACTERS_MAX)
        assert given.put("t0", "value", "y" * SCHEMA_BYTES_MAX)
        refused = await browser.post("/topics/orders/avro", {"part": "value", "schema": ORDER})
        assert refused.status == 409
        assert (await browser.post("/topics/nothing/avro", {"part": "value", "schema": ORDER})).status == 404
        assert (await browser.post("/topics/orders/avro", {"part": "header", "schema": ORDER})).status == 400
        await client.refresh([])


async def test_what_comes_is_decoded(autojump_clock: MockClock, tmp_path: Path) -> None:
    (tmp_path / "orders-value.avsc").write_text(ORDER)
    async with place(files=tmp_path) as (browser, client):
        await write(client, order(1), order(2), order(3))
        with trio.move_on_after(10):
            sent: list[bytes] = []
            await _listen(browser, "/topics/orders/live-events", "from=0:0&json=$.id>1", sent)
        data = b"".join(sent).decode()
        assert '\\"id\\": 3' in data
        assert '\\"id\\": 1' not in data


async def _listen(browser: Browser, path: str, query: str, sent: list[bytes]) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message.get("body", b""))

    await browser.app(scope, trio.sleep_forever, send)
