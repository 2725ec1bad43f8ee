"""A browser for the console's pages, in this loop: no socket, no server. And what every page must be like."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from random import Random
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import pytest
import trio

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.producer import Producer
from barnabas.server.client.topics import NewTopic, create_topics
from barnabas.server.console.app import Console, Options
from barnabas.server.console.avro.book import Book
from barnabas.server.console.desk import Desk
from barnabas.server.console.doors import Door, PasswordDoor
from barnabas.server.console.routes import PAGES, Page
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.visitors import Visitors
from barnabas.server.testing import START_OF_VIRTUAL_TIME, embedded_broker
from barnabas.server.tests.client.rig import to_broker


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    @property
    def words(self) -> str:
        """The text that is read, with single blanks."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.text)).split())


@dataclass
class Browser:
    """Keeps cookies, sends tokens of the page it saw last."""

    app: Any
    host: str = "localhost:8080"
    address: str = "127.0.0.1"
    cookies: dict[str, str] = field(default_factory=dict)
    token: str = ""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.send("GET", path, headers=headers)

    async def post(
        self,
        path: str,
        form: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
    ) -> Answer:
        """With the token of the last page, or another one."""
        pairs = [*(form.items() if isinstance(form, Mapping) else form)]
        pairs.append(("token", self.token if token is None else token))
        body = urlencode(pairs, errors="surrogateescape").encode()
        kinds = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self.send("POST", path, body, kinds)

    async def follow(self, answer: Answer) -> Answer:
        assert answer.status == 303, (answer.status, answer.words)
        return await self.get(answer.header("location") or "")

    async def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        raw, _, query = path.partition("?")
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {"host": self.host, **({"cookie": cookie} if cookie else {}), **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw.partition("#")[0]),
            "raw_path": raw.encode(),
            "query_string": query.partition("#")[0].encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": (self.address, 50000),
            "server": ("127.0.0.1", 8080),
        }
        sent: list[dict[str, Any]] = []
        asked = 0

        async def receive() -> dict[str, Any]:
            nonlocal asked
            asked += 1
            if asked == 1:
                return {"type": "http.request", "body": body, "more_body": False}
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        pairs = [(name.decode().lower(), value.decode("latin-1")) for name, value in start["headers"]]
        answer = Answer(start["status"], pairs, b"".join(each.get("body", b"") for each in sent[1:]))
        for name, value in pairs:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        found = re.search(rb'name="token" value="([^"]+)"', answer.body)
        if found is None and answer.body.startswith(b"{"):
            found = re.search(rb'"token":"([^"]+)"', answer.body)
        if found is not None:
            self.token = found[1].decode()
        return answer


Place = tuple[Browser, Client]
"""A console, and a client of the same broker."""


def now_ms() -> int:
    return int((START_OF_VIRTUAL_TIME + trio.current_time()) * 1000)


def app_over(
    client: Client,
    *,
    password: str | None = None,
    door: Door | None = None,
    book: Book | None = None,
    **options: Any,
) -> Console:
    rng = Random(11)
    if password is not None:
        door = PasswordDoor(password, rng.randbytes)
    visitors = Visitors(rng.randbytes, trio.current_time, "barnabas-console-8080", must_log_in=door is not None)
    return Console(Desk(client), visitors, Options("any:1", "1.2.3", **options), now_ms, door, book)


@asynccontextmanager
async def console(
    *, password: str | None = None, settings: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[Browser, Client]]:
    """A browser at the console of a broker of ours, which is empty."""
    async with (
        embedded_broker(broker_id="0", **(settings or {})) as broker,
        open_client(["any:1"], connect=to_broker(broker), rng=Random(7)) as client,
    ):
        browser = Browser(app_over(client, password=password, **options))
        browser.broker = broker  # type: ignore[attr-defined]
        yield browser, client


async def filled(client: Client, topic: str = "orders", count: int = 10, partitions: int = 2) -> None:
    """A topic with records 0 … count - 1, a second apart, the keys k0, k1, … in turn on its partitions."""
    assert await create_topics(client, [NewTopic(topic, partitions, 1)]) == {topic: partitions}
    await Producer(client, now_ms).send(
        [
            ToSend(
                topic,
                json.dumps({"n": i, "user": {"id": i % 3}}).encode(),
                b"k%d" % i,
                (("trace", b"t%d" % i),),
                i % partitions,
                1_750_000_000_000 + i * 1000,
            )
            for i in range(count)
        ]
    )


def paths(topic: str = "orders", group: str = "billing", broker: str = "0") -> list[tuple[Page, str]]:
    """Every page, for this topic, group and broker."""
    names = {"topic": segment(topic), "group": segment(group), "broker": broker}
    return [(page, page.path.format(**names)) for page in PAGES]


CLOBBERED = {"contains", "closest", "matches", "append", "remove", "submit", "reset", "action", "method", "children"}
"""Names of fields that would stand before what scripts, and tools for the blind, call."""
_VOID = {"meta", "link", "input", "br", "img", "hr"}
_SHAPES = {"rect", "path", "polygon", "polyline", "line", "circle"}


class Seen(HTMLParser):
    """Checks a page as it reads it: tags are closed in order, nothing runs or loads that is not ours, ids are single,
    fields have names for people.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.fields: list[tuple[str, dict[str, str | None]]] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.in_label = 0
        self.feed(text)
        self.close()
        if self.open:
            self.wrong.append(f"never closed: {self.open}")
        for each in {each for each in self.ids if self.ids.count(each) > 1}:
            self.wrong.append(f"id {each} stands there twice")
        for tag, attrs in self.fields:
            if attrs.get("id") not in self.labels and "aria-label" not in attrs and "labelled" not in attrs:
                self.wrong.append(f"{tag} {attrs.get('name')} has no label")
        if self.headings.count("h1") != 1:
            self.wrong.append(f"headings: {self.headings}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in _VOID | _SHAPES:
            self.open.append(tag)
        if tag == "label":
            self.in_label += 1
            if "for" in given:
                self.labels.add(str(given["for"]))
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)
        if "id" in given:
            self.ids.append(str(given["id"]))
        if given.get("name") in CLOBBERED and tag in ("input", "select", "textarea", "button"):
            self.wrong.append(f"a field {given['name']} hides a method of its form")
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden":
            self.fields.append((tag, {**given, **({"labelled": ""} if self.in_label else {})}))
        if tag == "script" and not str(given.get("src", "")).startswith("/static/"):
            self.wrong.append("a script in the page")
        if tag in ("iframe", "object", "embed", "base", "style", "img"):
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "formaction"):
                target = value or ""
                self.links.append(target)
                if target and (not target.startswith("/") or target.startswith("//")) and not target.startswith("#"):
                    self.wrong.append(f"{tag} leads to {target}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SHAPES | _VOID:
            self.wrong.append(f"<{tag}/>")
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self.in_label -= 1
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> inside {self.open[-3:]}")
            if tag in self.open:
                while self.open.pop() != tag:
                    pass
        else:
            self.open.pop()


def checked(answer: Answer) -> Seen:
    """The page, which must be well-formed, harmless and usable."""
    assert answer.header("content-type") == "text/html; charset=utf-8"
    page = Seen(answer.text)
    assert page.wrong == [], page.wrong
    return page


def local(links: Iterable[str]) -> list[str]:
    return [link for link in links if link and urlsplit(link).scheme == ""]
