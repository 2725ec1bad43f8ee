"""Schemas of a registry: fetched once, bounded, and said why not."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("fastavro")

from barnabas.server.console.avro import registry as registry_module
from barnabas.server.console.avro.registry import ABSENT_S, BYTES_MAX, DOWN_S, NoSchema, Registry
from barnabas.server.httpd.http_client import Place
from barnabas.server.tests.console.avro_kit import ORDER, FakeRegistry

URL = "http://registry:8081/apis/"
BASE = "/apis/schemas/ids/"


async def test_a_schema_is_fetched_once(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {f"{BASE}17": {"schema": ORDER}})
        registry = Registry(URL, "ada:se:cret", fake.open_stream)
        for _ in range(3):
            assert (await registry.schema(17)).all == (ORDER,)
        assert fake.asked == [f"{BASE}17"]
        assert fake.seen["host"] == "registry:8081"
        assert fake.seen["authorization"] == "Basic YWRhOnNlOmNyZXQ="
        assert str(registry.place) == "http://registry:8081/apis"


async def test_what_a_schema_refers_to_comes_before_it(autojump_clock: MockClock) -> None:
    refers: Any = lambda subject: {"references": [{"name": "x", "subject": subject, "version": 2}]}  # noqa: E731
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(
            nursery,
            {
                f"{BASE}1": {"schema": "A", **refers("b/c")},
                "/apis/subjects/b%2Fc/versions/2": {"schema": "B", **refers("c")},
                "/apis/subjects/c/versions/2": {"schema": "C"},
                f"{BASE}2": {"schema": "L", **refers("loop")},
                "/apis/subjects/loop/versions/2": {"schema": "L", **refers("loop")},
            },
        )
        registry = Registry(URL, open_stream=fake.open_stream)
        assert (await registry.schema(1)).all == ("C", "B", "A")
        with pytest.raises(NoSchema, match="lead nowhere"):
            await registry.schema(2)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((404, b"{}"), "schema 1: the registry at http://registry:8081/apis has none"),
        ({"schema": "x", "schemaType": "PROTOBUF"}, "schema 1 is not of Avro but of PROTOBUF"),
        ({"schema": 17}, "has no schema"),
        ({}, "has no schema"),
        ({"schema": "x", "references": [17]}, "lead nowhere"),
        ((403, b""), r"does not give it \(status 403\)"),
        ((200, b"x" * (BYTES_MAX + 1)), "schema 1: the registry at .* answered with more than 1,024 KiB"),
    ],
)
async def test_what_is_no_schema_is_asked_again_later(autojump_clock: MockClock, answer: Any, why: str) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {f"{BASE}1": answer})
        registry = Registry(URL, open_stream=fake.open_stream)
        for _ in range(2):
            with pytest.raises(NoSchema, match=why):
                await registry.schema(1)
        assert len(fake.asked) == 1
        fake.answers[f"{BASE}2"] = {"schema": ORDER}
        assert (await registry.schema(2)).all == (ORDER,)  # what is wrong with one says nothing of others
        fake.answers[f"{BASE}1"] = {"schema": ORDER}
        await trio.sleep(ABSENT_S + 1)
        assert (await registry.schema(1)).all == (ORDER,)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, b""), "status 500"),
        ((401, b""), "status 401"),
        ((302, b""), "status 302"),
        ((200, b"[]"), "no JSON object"),
        ((200, b"[" * 100_000), "no JSON object"),
        (b"220 smtp.example ready\r\n\r\n", "does not speak HTTP"),
        ("silence", "did not answer within 4 s"),
    ],
)
async def test_a_registry_in_trouble_is_left_alone_for_a_while(
    autojump_clock: MockClock, answer: Any, why: str
) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {f"{BASE}1": answer, f"{BASE}2": {"schema": ORDER}})
        registry = Registry(URL, "ada:secret", fake.open_stream)
        for number in (1, 1, 2):
            with pytest.raises(NoSchema, match=f"schema {number}: .*{why}") as caught:
                await registry.schema(number)
            assert "secret" not in str(caught.value)
        assert len(fake.asked) == 1
        await trio.sleep(DOWN_S + 1)
        assert (await registry.schema(2)).all == (ORDER,)
        nursery.cancel_scope.cancel()


async def test_what_is_known_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        fake = FakeRegistry(nursery, {f"{BASE}1": {"schema": ORDER}, f"{BASE}2": "silence"})
        registry = Registry(URL, open_stream=fake.open_stream)
        await registry.schema(1)
        nursery.start_soon(registry.schema, 2)
        await trio.sleep(1)
        assert len(fake.asked) == 2
        with trio.fail_after(0.1):
            assert (await registry.schema(1)).all == (ORDER,)
        nursery.cancel_scope.cancel()


async def test_what_is_kept_is_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "KEPT_CHARACTERS_MAX", 250)
    async with trio.open_nursery() as nursery:
        answers = {f"{BASE}{number}": {"schema": "x" * 100} for number in (1, 2, 3)}
        registry = Registry(URL, open_stream=FakeRegistry(nursery, answers).open_stream)
        for number in (1, 2, 1, 3):
            await registry.schema(number)
        assert [registry.known(number) for number in (1, 2, 3)] == [True, False, True]


async def test_what_a_schema_refers_to_is_bounded(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        refers: Any = {"references": [{"subject": name, "version": 1} for name in "ab"]}
        answers = {f"/apis/subjects/{name}/versions/1": {"schema": "x" * (BYTES_MAX * 3 // 4)} for name in "ab"}
        fake = FakeRegistry(nursery, {**answers, f"{BASE}1": {"schema": "x", **refers}})
        with pytest.raises(NoSchema, match="what schema 1 refers to is longer than 1,024 KiB"):
            await Registry(URL, open_stream=fake.open_stream).schema(1)


async def test_a_registry_that_is_not_there(autojump_clock: MockClock) -> None:
    async def nowhere(host: str, port: int, tls: Any) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(NoSchema, match="cannot be asked: connection refused"):
        await Registry(URL, open_stream=nowhere).schema(1)


async def test_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "TIMEOUT_S", 60.0)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            fake = FakeRegistry(nursery, {"/schemas/ids/1": {"schema": ORDER}})
            listeners = await nursery.start(partial(trio.serve_tcp, fake._serve, 0, host="127.0.0.1"))
            port = listeners[0].socket.getsockname()[1]
            assert (await Registry(f"http://127.0.0.1:{port}").schema(1)).all == (ORDER,)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "url",
    [
        *("registry:8081", "ftp://a", "http://", "http://a?b=c", "http://u:p@a", "http://a:99999"),
        *("http://a b", "http://a/\n", "http://größe", "http://a/ü", "http://a..b"),
    ],
)
def test_what_is_no_place(url: str) -> None:
    with pytest.raises(ValueError):
        Registry(url)


def test_places() -> None:
    assert Place.of("https://registry") == Place("https", "registry", 443, "")
    assert str(Place.of("http://[::1]:80/a/")) == "http://[::1]:80/a"
    assert json.dumps(str(Place.of("https://r"))) == '"https://r:443"'
