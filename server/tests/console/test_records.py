"""Records: newest, from places, filtered, step by step; one; exported; written."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from trio.testing import MockClock

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.offsets import delete_records
from barnabas.server.client.producer import Producer
from barnabas.server.client.reader import Reader, read_all
from barnabas.server.client.texts.record_json import from_json
from barnabas.server.console.web.view import SAID
from barnabas.server.tests.client.rig import transactional
from barnabas.server.tests.console.rig import Browser, Place, checked, console, filled, now_ms


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Place]:
    """Ten records on two partitions, 0 … 9 in turn."""
    async with console() as (browser, client):
        await filled(client)
        yield browser, client


async def found(browser: Browser, **query: Any) -> list[int]:
    """The numbers in the records of one step."""
    answer = await browser.get(f"/topics/orders/records.json?{urlencode(query)}")
    assert answer.status == 200, answer.text
    return [json.loads(each["value"]["text"])["n"] for each in answer.json["records"]]


async def steps(browser: Browser, **query: Any) -> list[list[int]]:
    """The same of all steps, by the links that go on; JSON and page agree on them."""
    every = []
    on: dict[str, Any] | None = query
    while on is not None:
        answer = await browser.get(f"/topics/orders/records.json?{urlencode(on)}")
        every.append([json.loads(each["value"]["text"])["n"] for each in answer.json["records"]])
        page = checked(await browser.get(f"/topics/orders/records?{urlencode(on)}"))
        on = answer.json["next"]
        links = [link for link in page.links if "go=" in link and link.startswith("/topics/orders/records?")]
        assert links == ([f"/topics/orders/records?{urlencode(on)}"] if on else [])
        assert len(every) < 30
    return every


async def test_newest_first(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    assert await found(browser) == list(range(10))[::-1]
    assert await found(browser, count=3) == [9, 8, 7]
    assert await steps(browser, count=4) == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    assert await found(browser, partition=1) == [9, 7, 5, 3, 1]
    data = (await browser.get("/topics/orders/records.json?count=3")).json
    assert (data["held"], data["is_short"], data["problems"]) == (10, False, [])
    assert data["searched_to"] == {"0": 4, "1": 3}
    record = data["records"][0]
    assert (record["partition"], record["offset"], record["key"]["text"]) == (1, 4, "k9")
    assert record["headers"] == [{"name": "trace", "kind": "text", "text": "t9", "size": 2, "is_cut": False}]
    assert record["time"] == "2025-06-15T15:06:49.000Z"


async def test_from_places(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    assert await steps(browser, **{"from": "earliest", "count": 4}) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert await found(browser, **{"from": "offset", "at": "3"}) == [6, 7, 8, 9]
    assert await found(browser, **{"from": "offset", "at": "3", "partition": 0}) == [6, 8]
    assert await found(browser, **{"from": "offset", "at": "99"}) == []
    assert await found(browser, **{"from": "time", "at": "2025-06-15T15:06:47Z"}) == [7, 8, 9]
    assert await found(browser, **{"from": "time", "at": "2030-01-01"}) == []
    await commit_offsets(client, "g", {("orders", 0): 4, ("orders", 1): 5})
    assert await found(browser, **{"from": "group", "at": "g"}) == [8]
    await commit_offsets(client, "one", {("orders", 0): 5})
    assert await found(browser, **{"from": "group", "at": "one"}) == [1, 3, 5, 7, 9]


async def test_filters(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    assert await found(browser, json="$.user.id == 1") == [7, 4, 1]
    assert await found(browser, json="$.n > 6", key="k8") == [8]
    assert await found(browser, text='"n": 3') == [3]
    assert await found(browser, text="t4") == [4]
    assert await found(browser, header="trace=t5") == [5]
    assert await steps(browser, json="$.user.id == 1", count=2) == [[7, 4], [1]]
    assert await steps(browser, **{"from": "earliest", "json": "$.user.id == 1", "count": 2}) == [[1, 4], [7]]
    none = await browser.get("/topics/orders/records?text=nothing")
    checked(none)
    assert "No record . Looked at 10 records" in none.words
    assert "down to the beginning of the log" in none.words


async def test_a_step_that_ends_early_says_so(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = place
    for way in ("newest", "earliest"):
        for name in ("backward", "forward"):
            original = getattr(__import__("barnabas.server.console.search.look", fromlist=[name]), name)

            async def small(*given: Any, original: Any = original, **options: Any) -> Any:
                return await original(*given, **{**options, "bytes_max": 60})

            monkeypatch.setattr(f"barnabas.server.console.search.asked.{name}", small)
        answer = await browser.get(f"/topics/orders/records?from={way}&text=nothing")
        checked(answer)
        assert "Not everything was looked at" in answer.words, way
        assert "Go on from there" in answer.words
        every = await steps(browser, **{"from": way, "json": "$.user.id == 1"})
        assert len(every) > 2
        assert sorted(number for step in every for number in step) == [1, 4, 7]
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("from=offset", "an offset is expected"),
        ("from=offset&at=x", "an offset is expected, not 'x'"),
        ("from=time&at=soon", "no place"),
        ("from=time&at=17", "is no time"),
        ("from=group&at=nobody", "has committed nothing"),
        ("from=elsewhere", "one of newest"),
        ("partition=7", "has 2, from 0 on"),
        ("partition=x", "a number"),
        ("count=0", "from 1 to 500"),
        ("count=501", "from 1 to 500"),
        ("json=%24%5B", "cannot be read"),
        ("go=x", "positions are expected"),
        ("as=colour", "one of auto"),
    ],
)
async def test_what_cannot_be_searched(autojump_clock: MockClock, place: Place, query: str, why: str) -> None:
    browser, _ = place
    answer = await browser.get(f"/topics/orders/records?{query}")
    assert answer.status == 400, answer.words
    checked(answer)
    assert why in answer.words
    assert 'id="text"' in answer.text  # the form is there still
    exported = await browser.get(f"/topics/orders/export?{query}")
    assert exported.status == 400


async def test_what_is_no_longer_there(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await delete_records(client, {("orders", 0): 3})
    assert await found(browser) == [9, 8, 7, 6, 5, 3, 1]
    assert await found(browser, **{"from": "offset", "at": "0"}) == [1, 3, 5, 6, 7, 8, 9]
    await delete_records(client, {("orders", 0): -1, ("orders", 1): -1})
    empty = await browser.get("/topics/orders/records")
    checked(empty)
    assert "No record" in empty.words


async def test_only_committed_transactions(autojump_clock: MockClock, place: Place) -> None:
    browser, _client = place
    broker = browser.broker  # type: ignore[attr-defined]
    async with transactional(broker, "tx") as writer:
        await writer.write("orders", b'{"n": 100}')
        await writer.end(commit=False)
        await writer.write("orders", b'{"n": 101}')
        assert {100, 101} <= set(await found(browser))
        assert not {100, 101} & set(await found(browser, committed=1))
        await writer.end(commit=True)
        now = set(await found(browser, committed=1))
        assert 101 in now
        assert 100 not in now


async def test_one_record(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    page = await browser.get("/topics/orders/record?partition=1&offset=2")
    checked(page)
    assert "&#34;n&#34;: 5" in page.text
    data = (await browser.get("/topics/orders/record.json?partition=1&offset=2")).json
    assert json.loads(data["record"]["value"]["text"])["n"] == 5
    assert data["next_offset"] == 3
    raw = await browser.get("/topics/orders/record?partition=1&offset=2&part=value")
    assert json.loads(raw.body)["n"] == 5
    assert raw.header("content-disposition") == "attachment; filename*=UTF-8''orders-1-2.value"
    hexed = (await browser.get("/topics/orders/record.json?offset=0&as=hex")).json
    assert hexed["record"]["key"]["text"] == f"00000000  {'6b 30':47}  k0"
    for query in ("offset=99", "offset=99&part=value", "partition=9&offset=0", "offset=0&part=colour"):
        answer = await browser.get(f"/topics/orders/record?{query}")
        assert answer.status == 404, query
        checked(answer)
    assert (await browser.get("/topics/orders/record?offset=x")).status == 400


async def test_the_export_is_what_produce_reads(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    odd = bytes(range(256))
    await Producer(client, now_ms).send([ToSend("orders", odd, None, (("h", odd), ("n", None)), 0)])
    answer = await browser.get("/topics/orders/export?from=earliest&partition=0")
    lines = answer.text.splitlines()
    assert answer.header("content-disposition") == "attachment; filename*=UTF-8''orders.ndjson"
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2, 3, 4, 5]
    back = from_json(lines[-1].encode(), "orders")
    assert (back.value, back.key, back.headers) == (odd, None, (("h", odd), ("n", None)))
    newest = await browser.get("/topics/orders/export?records=3")
    assert [len(json.loads(line)) for line in newest.text.splitlines()] == [8, 8, 8, 1]
    some = await browser.get("/topics/orders/export?json=%24.user.id+%3D%3D+1")
    assert [json.loads(json.loads(line)["value"])["n"] for line in some.text.splitlines()] == [7, 4, 1]


async def test_an_export_of_many_steps(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, _ = place
    monkeypatch.setattr("barnabas.server.console.pages.records.records_export.COUNT_MAX", 3)
    for way, order in (("earliest", range(10)), ("newest", range(9, -1, -1))):
        answer = await browser.get(f"/topics/orders/export?from={way}")
        numbers = [json.loads(json.loads(line)["value"])["n"] for line in answer.text.splitlines()]
        assert numbers == list(order)
    for count in (3, 5, 6):
        cut = (await browser.get(f"/topics/orders/export?from=earliest&records={count}")).text.splitlines()
        assert len(cut) == count + 1
        go = json.loads(cut[-1])["go"]
        rest = (await browser.get(f"/topics/orders/export?from=earliest&go={go}")).text.splitlines()
        assert [json.loads(json.loads(line)["value"])["n"] for line in rest] == list(range(count, 10))


# -- written -----------------------------------------------------------------------------------------------------------


async def written(client: Client, partition: int, offset: int) -> Any:
    where = {("orders", partition): offset}
    reader = Reader(client, where, {("orders", partition): offset + 1}, each_max=1)
    return (await read_all(reader))[0]


async def test_a_record_is_written(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    page = await browser.get("/topics/orders/produce")
    checked(page)
    form = {
        "key": "k",
        "key_as": "text",
        "value": "one\r\ntwo\r\n",
        "value_as": "text",
        "headers": "a=1\r\nb: two\r\nc:null\r\nd:base64:/w==\r\ne=x:y\r\n",
        "partition": "1",
    }
    answer = await browser.post("/topics/orders/produce", form)
    assert answer.header("location") == "/topics/orders/record?partition=1&offset=5&said=produced"
    assert SAID["produced"] in (await browser.follow(answer)).words
    record = await written(client, 1, 5)
    assert (record.key, record.value) == (b"k", b"one\ntwo\n")
    assert record.headers == [("a", b"1"), ("b", b"two"), ("c", None), ("d", b"\xff"), ("e", b"x:y")] or list(
        record.headers
    ) == [("a", b"1"), ("b", b"two"), ("c", None), ("d", b"\xff"), ("e", b"x:y")]
    data = (await browser.post("/topics/orders/produce.json", form)).json
    assert data["records"] == [{"topic": "orders", "partition": 1, "offset": 6}]


async def test_a_tombstone_bytes_and_lines(autojump_clock: MockClock, place: Place) -> None:
    browser, client = place
    await browser.get("/topics/orders/produce")
    base = {"key": "", "key_as": "null", "partition": "0"}
    await browser.post("/topics/orders/produce", {**base, "key": "k", "key_as": "text", "value_as": "null"})
    record = await written(client, 0, 5)
    assert (record.key, record.value) == (b"k", None)
    packed = b64encode(bytes(range(256))).decode()
    await browser.post("/topics/orders/produce", {**base, "value": f" {packed}\r\n", "value_as": "base64"})
    assert (await written(client, 0, 6)).value == bytes(range(256))
    many = await browser.post("/topics/orders/produce", {**base, "value": "a\r\n\r\nb\r\nc", "lines": "1"})
    assert many.header("location") == "/topics/orders/records?said=produced"
    assert [(await written(client, 0, offset)).value for offset in (7, 8, 9)] == [b"a", b"b", b"c"]


async def test_a_copy_is_the_same_record(autojump_clock: MockClock, place: Place) -> None:
    """Sent again as the form has it, whatever is in it."""
    browser, client = place
    odd = bytes(range(256))
    headers = (("a", b"x=y"), ("b", None), ("c", odd), ("d", b"1\n2"), ("e", b"\r"), ("f", b" blank "), ("g", b""))
    values = [b"\nfirst\n", b"<b>&amp;</b>", b"cr\r\n", odd, b"", None, b"  blanks  ", "é\u2028".encode()]
    await Producer(client, now_ms).send([ToSend("orders", value, value, headers, 0) for value in values])
    for number, value in enumerate(values):
        page = checked(await browser.get(f"/topics/orders/produce?partition=0&offset={5 + number}"))
        text = (await browser.get(f"/topics/orders/produce?partition=0&offset={5 + number}")).text
        form = {**typed_in(text), "partition": "0"}
        answer = await browser.post("/topics/orders/produce", form)
        assert answer.status == 303, answer.words
        record = await written(client, 0, 5 + len(values) + number)
        assert (record.key, record.value) == (value, value)
        assert list(record.headers) == list(headers)
        assert page.headings


def typed_in(text: str) -> dict[str, str]:
    """What a browser would send of the form: texts, with the ends of lines as browsers have them."""
    import re
    from html import unescape

    found = {}
    for name, body in re.findall(r'<textarea [^>]*name="(\w+)"[^>]*>(.*?)</textarea>', text, re.DOTALL):
        body = unescape(body)
        body = body[1:] if body.startswith("\n") else body
        found[name] = body.replace("\n", "\r\n")
    for name, options in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', text, re.DOTALL):
        chosen = re.search(r'value="(\w+)" selected', options)
        assert chosen is not None
        found[name] = chosen[1]
    return found


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"value": "x", "partition": "9"}, "has 2, from 0 on"),
        ({"value": "x", "partition": "no"}, "a number"),
        ({"value": "x", "value_as": "null"}, "which is meant?"),
        ({"value": "x", "key": "k", "key_as": "null"}, "which is meant?"),
        ({"value": "no base64!", "value_as": "base64"}, "no base64"),
        ({"value": "x", "headers": "nothing"}, "lines of name=value"),
        ({"value": "x", "headers": "a:base64:!"}, "no base64"),
        ({"value": "", "lines": "1"}, "lines are expected"),
        ({"value": "x", "value_as": "colour"}, "one of text"),
        ({"value": "x" * 2_000_000}, "MESSAGE_TOO_LARGE"),
    ],
)
async def test_what_cannot_be_written(autojump_clock: MockClock, place: Place, form: dict[str, str], why: str) -> None:
    browser, _ = place
    await browser.get("/topics/orders/produce")
    answer = await browser.post("/topics/orders/produce", form)
    assert answer.status == 422, answer.words[:300]
    checked(answer)
    assert why in answer.words
    assert (await browser.get("/topics/orders/records.json")).json["held"] == 10


async def test_a_topic_that_is_gone_takes_nothing(autojump_clock: MockClock, place: Place) -> None:
    browser, _ = place
    await browser.get("/topics/orders/produce")
    assert (await browser.post("/topics/nothing/produce", {"value": "x"})).status == 404
