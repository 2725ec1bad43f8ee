"""What holds for every page by the whole table of routes: form, headers, Host, tokens, read-only, log-in, errors."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("starlette")

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import open_client
from barnabas.server.client.groups.committed import commit_offsets
from barnabas.server.client.producer import Producer
from barnabas.server.console.app import FORM_BYTES_MAX
from barnabas.server.console.openapi import FORMS, QUERIES
from barnabas.server.console.routes import PAGES
from barnabas.server.console.web.guard import HEADERS
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import SAID
from barnabas.server.tests.console.rig import Browser, app_over, checked, console, filled, local, now_ms, paths
from barnabas.server.tests.test_layers import ROOT

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


@pytest.fixture
async def place(autojump_clock: MockClock) -> AsyncIterator[Browser]:
    """A console of a broker with a topic and a group."""
    async with console() as (browser, client):
        await filled(client)
        await commit_offsets(client, "billing", {("orders", 0): 2, ("orders", 1): 1})
        yield browser


async def test_every_page_is_well_formed_harmless_and_usable(autojump_clock: MockClock, place: Browser) -> None:
    for page, path in paths():
        if not page.is_json_too:
            continue
        query = "?partition=0&offset=1" if page.name == "topics.record" else ""
        answer = await place.get(path + query)
        assert answer.status == 200, (path, answer.words)
        seen = checked(answer)
        assert len(answer.body) < 200_000
        assert page.json_path.format(topic="orders", group="billing", broker="0") in answer.text
        assert seen.headings[0] == "h1"


async def test_every_page_is_json_too(autojump_clock: MockClock, place: Browser) -> None:
    for page, _ in paths():
        if not page.is_json_too:
            continue
        path = page.json_path.format(topic="orders", group="billing", broker="0")
        answer = await place.get(path + ("?offset=1" if page.name == "topics.record" else ""))
        assert answer.status == 200, (path, answer.text)
        assert answer.header("content-type") == "application/json"
        assert isinstance(answer.json, dict)
    asked = await place.get("/topics", {"accept": "application/json"})
    assert [each["name"] for each in asked.json["topics"]] == ["orders"]
    browsers = await place.get("/topics", {"accept": "text/html,application/json;q=0.9"})
    checked(browsers)


async def test_links_lead_to_pages(autojump_clock: MockClock, place: Browser) -> None:
    """All that can be reached from the first page, without a change."""
    left, seen = ["/"], set[str]()
    while left:
        path = left.pop()
        if path in seen or ("edit=" in path and "edit=retention.ms" not in path):
            continue
        seen.add(path)
        answer = await place.get(path)
        assert answer.status in (200, 405), (path, answer.words)
        if answer.header("content-type") == "text/html; charset=utf-8" and answer.status == 200:
            left += [link for link in local(checked(answer).links) if link.startswith("/")]
        assert len(seen) < 400
    assert "/groups/billing/reset" in seen
    assert any(path.startswith("/static/console.css?v=") for path in seen)


async def test_every_answer_has_the_headers(autojump_clock: MockClock, place: Browser) -> None:
    for path in ("/", "/nowhere", "/static/console.css", "/static/nothing", "/topics/nowhere/records", "/topics.json"):
        answer = await place.get(path)
        for name, value in HEADERS:
            assert answer.header(name) == value, (path, name)
        assert [name for name, _ in answer.headers].count("content-security-policy") == 1
    refused = await place.get("/", {"host": "evil.example"})
    assert refused.status == 421
    assert refused.header("x-frame-options") == "DENY"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "localhost.evil.example"])
async def test_no_page_is_given_under_a_strange_name(autojump_clock: MockClock, place: Browser, host: str) -> None:
    for page, path in paths():
        assert (await place.get(path, {"host": host})).status == 421, path
        assert (await place.post(path, headers={"host": host})).status == 421, path
        assert page.name


async def test_a_change_needs_the_token_of_this_visitor(
    autojump_clock: MockClock, place: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [(page, path) for page, path in paths() if page.change is not None]
    assert len(changes) >= 7
    await place.get("/")
    other = Browser(place.app)
    await other.get("/topics")
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        for page, path in changes:
            for target in (path, f"{path}.json"):
                for token in ("", "x", other.token, place.token[:-1]):
                    answer = await place.post(target, {"confirm": "orders"}, token=token)
                    assert answer.status == 403, (page.name, answer.words)
                for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
                    assert (await place.post(target, headers=headers)).status == 403
                assert (await place.post(target, headers={"content-type": "text/plain"})).status == 415
                assert (await place.post(target, headers={"content-type": "application/json"})).status == 415
                without = Browser(place.app)
                assert (await without.post(target, token=place.token)).status == 403  # and no cookie
    assert len(caplog.records) == len(changes) * 2 * 9
    assert all("was refused (4" in record.getMessage() for record in caplog.records)
    assert [each["name"] for each in (await place.get("/topics.json")).json["topics"]] == ["orders"]


async def test_a_token_in_a_header_will_do(autojump_clock: MockClock, place: Browser) -> None:
    token = (await place.get("/topics.json")).json["token"]
    answer = await place.post("/new-topic.json", {"name": "t"}, {"x-csrf-token": token}, token="")
    assert (answer.status, answer.json["done"]) == (200, SAID["created"])


async def test_what_cannot_be_changed_takes_no_post(autojump_clock: MockClock, place: Browser) -> None:
    for page, path in paths():
        if page.change is None:
            answer = await place.post(path)
            assert answer.status == 405, path
            assert "GET" in (answer.header("allow") or "")
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert (await place.send(method, "/topics")).status == 405


async def test_nothing_can_be_changed_where_it_is_read_only(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(is_read_only=True) as (browser, client):
        await filled(client)
        await commit_offsets(client, "billing", {("orders", 0): 2})
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            for page, path in paths():
                if page.is_json_too:
                    query = "?offset=0" if page.name == "topics.record" else ""
                    seen = await browser.get(path + query)
                    checked(seen)
                    posts = seen.text.count('method="post"')
                    assert posts == 0, path
                if page.change is not None:
                    answer = await browser.post(path, {"confirm": "orders"})
                    assert answer.status == 403
                    assert "read-only" in answer.words
                    assert (await browser.post(f"{path}.json")).json["error"]["status"] == 403
        assert len(caplog.records) == 2 * sum(page.change is not None for page in PAGES)


async def test_nobody_sees_anything_without_the_password(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(password="open sesame") as (browser, client):
        await filled(client)
        for page, path in paths():
            answer = await browser.get(path)
            assert answer.status == 303, path
            assert (answer.header("location") or "").startswith("/login")
            if page.is_json_too:
                refused = await browser.get(page.json_path.format(topic="orders", group="billing", broker="0"))
                assert (refused.status, refused.json) == (401, {"error": {"status": 401, "message": "log in first"}})
            assert (await browser.post(path, {"confirm": "orders"})).status in (401, 405)
        login = await browser.get("/topics?q=a")
        assert login.header("location") == "/login?next=%2Ftopics%3Fq%3Da"
        form = await browser.follow(login)
        checked(form)
        assert "orders" not in form.text
        before = dict(browser.cookies)
        with caplog.at_level(logging.INFO, "barnabas.console.audit"):
            assert (await browser.post("/login", {"password": "open"})).status == 403
            assert (await browser.post("/login", {"password": "open sesame"}, token="x")).status == 403
            inside = await browser.post("/login?next=/topics%3Fq%3Da", {"password": "open sesame"})
        assert (inside.status, inside.header("location")) == (303, "/topics?q=a")
        assert browser.cookies != before
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
        assert "sesame" not in caplog.text
        assert (await browser.get("/topics")).status == 200
        stale = Browser(browser.app, cookies=before)
        assert (await stale.get("/topics")).status == 303
        await browser.get("/topics")
        assert (await browser.post("/logout", token="x")).status == 403
        assert (await browser.get("/topics")).status == 200
        assert (await browser.post("/logout")).status == 303
        assert (await browser.get("/topics")).status == 303


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:1", "/\n/e"]
)
async def test_a_log_in_leads_to_pages_of_ours_only(autojump_clock: MockClock, wanted: str) -> None:
    async with console(password="open sesame") as (browser, _):
        path = f"/login?next={quote(wanted)}"
        checked(await browser.get(path))
        answer = await browser.post(path, {"password": "open sesame"})
        assert (answer.status, answer.header("location")) == (303, "/")


async def test_guessing_is_slowed_down(autojump_clock: MockClock) -> None:
    async with console(password="open sesame") as (browser, _):
        await browser.get("/login")
        statuses = [(await browser.post("/login", {"password": "guess"})).status for _ in range(6)]
        assert statuses == [403, 403, 403, 403, 429, 429]
        assert (await browser.post("/login", {"password": "open sesame"})).status == 429
        await trio.sleep(11)
        assert (await browser.post("/login", {"password": "open sesame"})).status == 303


async def test_without_a_password_there_is_no_log_in(autojump_clock: MockClock, place: Browser) -> None:
    assert (await place.get("/login")).header("location") == "/"


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2Fapp.py",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/console.css%00",
        "/../../etc/passwd",
        "/topics/../../etc/passwd/records",
        "/templates/layout.html",
        "/topics/a~2Fb~2",
        "/topics/~zz/records",
        "/topics/~FF/records",
        "/topics/",
        "/topics.json.json",
        "/groups/a/b/lag",
    ],
)
async def test_paths_lead_nowhere_else(autojump_clock: MockClock, place: Browser, path: str) -> None:
    answer = await place.get(path)
    assert answer.status in (404, 307), (answer.status, answer.words)
    assert b"import" not in answer.body
    assert b"root:" not in answer.body


async def test_short_paths_lead_on(autojump_clock: MockClock, place: Browser) -> None:
    assert (await place.get("/topics/orders")).header("location") == "/topics/orders/partitions"
    assert (await place.get("/groups/a~2Fb")).header("location") == "/groups/a~2Fb/lag"
    assert (await place.get("/groups/caf%C3%A9%22")).header("location") == "/groups/caf%C3%A9%22/lag"


async def test_a_name_that_ends_like_json(autojump_clock: MockClock) -> None:
    async with console() as (browser, client):
        await filled(client, "orders.json", 2)
        assert (await browser.get("/topics/orders.json/records.json")).json["topic"] == "orders.json"
        checked(await browser.get("/topics/orders.json/records"))
        assert (await browser.get("/topics/orders.json")).header("location") == "/topics/orders.json/partitions"


async def test_what_is_not_there(autojump_clock: MockClock, place: Browser) -> None:
    for path in ("/topics/nothing/partitions", "/topics/nothing/records", "/groups/nothing/lag", "/nowhere"):
        answer = await place.get(path)
        assert answer.status == 404, path
        checked(answer)
        for target in (f"{path}.json",):
            found = await place.get(target)
            assert found.status == 404
            assert found.json["error"]["status"] == 404


@pytest.mark.parametrize("query", ["page=x", "page=0", "sort=colour", "page=99999999999999999999", "q=%FF"])
async def test_what_cannot_be_understood(autojump_clock: MockClock, place: Browser, query: str) -> None:
    answer = await place.get(f"/topics?{query}")
    assert answer.status == 400
    checked(answer)


async def test_a_form_that_is_too_long(autojump_clock: MockClock, place: Browser) -> None:
    await place.get("/new-topic")
    answer = await place.post("/new-topic", {"settings": "x" * FORM_BYTES_MAX})
    assert answer.status == 413
    many = await place.post("/new-topic", [("a", "")] * 30_000)
    assert many.status == 400


async def test_strangers_texts_stay_texts(autojump_clock: MockClock) -> None:
    """Group ids, keys, values, headers, searches: whatever a client writes."""
    async with console() as (browser, client):
        await filled(client, "t", 1, 1)
        data = HOSTILE.encode()
        record = ToSend("t", data, data, ((HOSTILE, data), ("\udcff".encode("utf-8", "replace").decode(), None)))
        await Producer(client, now_ms).send([record, ToSend("t", json.dumps({HOSTILE: HOSTILE}).encode())])
        await commit_offsets(client, HOSTILE, {("t", 0): 1})
        for page, path in paths("t", HOSTILE):
            if page.is_json_too:
                for query in (
                    "",
                    f"?offset=1&q={HOSTILE}&at={HOSTILE}&text={HOSTILE}&edit={HOSTILE}&said={HOSTILE}",
                ):
                    answer = await browser.get(path + query.replace("#", "%23").replace("&lt", "%26lt"))
                    checked(answer)
                    assert b"<script>alert" not in answer.body, path
                    assert b"<img" not in answer.body, path
                    assert b"49}" not in answer.body, path
        seen = await browser.get("/topics/t/records")
        assert seen.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
        exported = await browser.get("/topics/t/export?from=earliest")
        assert exported.header("content-type") == "application/x-ndjson"
        assert (exported.header("content-disposition") or "").startswith("attachment; ")
        raw = await browser.get("/topics/t/record?offset=1&part=value")
        assert raw.header("content-type") == "application/octet-stream"
        assert raw.body == data


async def test_the_longest_names_have_pages(autojump_clock: MockClock) -> None:
    """A topic's has 249 characters at most; a group's may be longer than any, and of any."""
    topic, group = "t." + "x" * 247, "große Gruppe/" * 200
    async with console() as (browser, client):
        await filled(client, topic, 3, 1)
        await commit_offsets(client, group, {(topic, 0): 1})
        for page, path in paths(topic, group):
            if page.is_json_too:
                answer = await browser.get(path + ("?offset=1" if page.path.endswith("/record") else ""))
                checked(answer)
                assert answer.status in (200, 400), (path[:100], answer.status)  # 400: no ACL is named to be deleted
        assert (await browser.get("/topics.json")).json["topics"][0]["name"] == topic
        (row,) = (await browser.get("/groups.json")).json["groups"]
        assert (row["group"], row["lag"], row["topics"]) == (group, 2, [topic])
        deleted = await browser.post(f"/topics/{segment(topic)}/delete", {"confirm": topic})
        assert deleted.status == 303, deleted.words
        assert (await browser.get("/topics.json")).json["topics"] == []


async def test_bytes_that_are_no_text_stay_bytes(autojump_clock: MockClock) -> None:
    async with console() as (browser, client):
        await filled(client, "t", 1, 1)
        odd = bytes(range(256))
        await Producer(client, now_ms).send([ToSend("t", odd, odd, (("\udcff", odd), ("\x1b[2J\u202e", odd)), 0)])
        for path in ("records", "records.json", "record?offset=1", "record.json?offset=1", "produce?offset=1"):
            answer = await browser.get(f"/topics/t/{path}")
            assert answer.status == 200, answer.words
            answer.body.decode()
        assert (await browser.get("/topics/t/record?offset=1&part=key")).body == odd


async def test_a_bug_is_an_error_page_and_logged_once(
    autojump_clock: MockClock, place: Browser, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any) -> Any:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr("barnabas.server.console.desk.Desk.topics", broken)
    for path in ("/topics", "/topics.json"):
        caplog.clear()
        answer = await place.get(path)
        assert answer.status == 500
        assert "secret" not in answer.text
        assert len([record for record in caplog.records if record.exc_info]) == 1
    monkeypatch.undo()
    assert (await place.get("/topics")).status == 200


async def test_a_cluster_that_cannot_be_reached_is_said(autojump_clock: MockClock) -> None:
    async def nowhere(endpoint: Any) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "connection refused")

    async with open_client(["kafka.example:9092"], connect=nowhere) as client:
        browser = Browser(app_over(client))
        answer = await browser.get("/")
        assert answer.status == 502
        checked(answer)
        assert "kafka.example:9092" in answer.words
        assert "refused" in answer.words
        for page, path in paths():
            found = await browser.get(path)
            assert found.status == (200 if page.name == "topics.new" else 502), path
        assert (await browser.get("/static/console.css")).status == 200


async def test_one_visitor_that_leaves_harms_nobody(autojump_clock: MockClock, place: Browser) -> None:
    """A page whose visitor is gone raises where it is sent; the next one is served."""

    async def gone(message: Any) -> None:
        raise OSError("gone")

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/topics",
        "raw_path": b"/topics",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "client": None,
        "server": None,
    }
    with pytest.raises(OSError, match="gone"):
        await place.app(scope, receive, gone)
    assert (await place.get("/topics")).status == 200


async def test_the_openapi_file_knows_every_page(autojump_clock: MockClock, place: Browser) -> None:
    described = (await place.get("/openapi.json")).json
    assert described["openapi"].startswith("3.1")
    assert len(described["paths"]) == len(PAGES)
    for page in PAGES:
        path = page.json_path if page.is_json_too else page.path
        operations = described["paths"][path]
        assert ("post" in operations) is (page.change is not None)
        named = {each["name"] for each in operations["get"]["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", page.path))
    ids = [each["operationId"] for row in described["paths"].values() for each in row.values()]
    assert len(ids) == len(set(ids))


def test_the_openapi_file_knows_every_field() -> None:
    """What a page asks of its query or form stands in the file, or is for people only (`edit`, `said`)."""
    folder = ROOT / "server" / "console"
    asked = set()
    for path in (*folder.glob("pages/**/*.py"), *folder.glob("search/*.py")):
        asked |= set(re.findall(r"(?:query|form)\.(?:text|raw|many|has|number|choice)\(\"(\w+)\"", path.read_text()))
    told = {name for fields in (*QUERIES.values(), *FORMS.values()) for name in fields}
    assert asked - told == {"edit"}
    assert set(FORMS) == {page.name for page in PAGES if page.change is not None}
