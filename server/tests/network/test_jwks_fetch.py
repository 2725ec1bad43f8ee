"""Keys fetched from a file and over HTTP, and when they cannot be had."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trio

pytest.importorskip("joserfc")

from joserfc.jwk import ECKey
from trio.testing import MockClock

from barnabas.server.network import jwks_fetch
from barnabas.server.network.jwks_fetch import BYTES_MAX, CannotFetch, JwksFetcher, fetch
from barnabas.server.security.sasl.jwks import Jwks, RefreshRules

KEYS = json.dumps({"keys": [ECKey.generate_key("P-256", {"kid": "k"}).as_dict(private=False)]}).encode()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The web server is a thread of this process, and stands still when that does."""
    monkeypatch.setattr(jwks_fetch, "TIMEOUT_S", 60.0)


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A web server; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            thread.join()


def send(code: int, body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.write_bytes(KEYS)
    assert fetch(file.as_uri()) == KEYS
    file.unlink()
    with pytest.raises(CannotFetch, match="No such file"):
        fetch(file.as_uri())


def test_over_http() -> None:
    with serving(send(200, KEYS)) as url:
        assert fetch(url) == KEYS
    with pytest.raises(CannotFetch, match="refused"):
        fetch(url)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (send(404, b""), "answered 404"),
        (send(200, b"x" * (BYTES_MAX + 1)), "more than 1048576 bytes"),
        (lambda handler: handler.wfile.write(b"rubbish\r\n\r\n"), "BadStatusLine"),
    ],
)
def test_answers_that_are_none(answer: Callable[[BaseHTTPRequestHandler], None], why: str) -> None:
    with serving(answer) as url, pytest.raises(CannotFetch, match=why):
        fetch(url)


async def test_keys_are_fetched_when_due_and_errors_logged_once(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[bytes | CannotFetch] = [CannotFetch("gone"), CannotFetch("gone"), KEYS, b"rubbish", KEYS]
    asked: list[float] = []

    async def get(url: str) -> bytes:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time() - begin)
        answer = answers.pop(0) if answers else KEYS
        if isinstance(answer, CannotFetch):
            raise answer
        return answer

    begin = trio.current_time()
    jwks = Jwks(RefreshRules(refresh_s=100, backoff_s=2, backoff_max_s=3))
    with caplog.at_level(logging.INFO):
        await nursery.start(JwksFetcher(jwks, "http://keys", get).run)
        assert not jwks.has_keys
        await trio.sleep(6)
        assert jwks.has_keys
        assert jwks.miss("new", trio.current_time())
        await trio.sleep(4)
        assert jwks.keys("k", "EC"), "rubbish does not take them away"
        await trio.sleep(120)
    assert asked == pytest.approx([0, 2, 5, 7, 9, 109], abs=1.1)
    said = [record.getMessage() for record in caplog.records if record.name == "barnabas.security"]
    assert said == [
        "cannot fetch the keys at http://keys, rejecting all tokens: gone",
        "fetched the keys at http://keys",
        "cannot fetch the keys at http://keys, keeping the present keys: it is no JSON",
        "fetched the keys at http://keys",
    ]
    nursery.cancel_scope.cancel()
