"""Log-in with a token that is pasted: the brokers judge it, it is written nowhere, the log-in ends with it."""

from __future__ import annotations

import json
import logging
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.server.client.client import open_client
from barnabas.server.console.bearer import SOMEBODY, Bearer, NoToken
from barnabas.server.console.doors import ClusterDoor
from barnabas.server.settings.sasl import VALIDATORS
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.console.rig import Browser, app_over, checked


def unsigned(claims: Any) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
    return ".".join(urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts) + ".c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("claims", "who", "expires_s"),
    [
        ({"sub": "ada", "exp": 200}, "ada", 200.0),
        ({"sub": "ada"}, "ada", None),
        ({"sub": 17, "exp": "soon"}, SOMEBODY, None),
        ({"sub": "", "exp": 1e300}, SOMEBODY, None),
        ([], SOMEBODY, None),
    ],
)
def test_what_a_token_says(claims: Any, who: str, expires_s: float | None) -> None:
    token = unsigned(claims)
    for text in (token, f" Bearer {token}\n"):
        found = Bearer.of(text, 100.0)
        assert (found.token, found.who, found.expires_s) == (token, who, expires_s)
        assert token not in repr(found)


def test_opaque_tokens_say_nothing() -> None:
    for token in ("opaque", "a.b", "a.!.c", "..", "a." + "W" * 40_000 + ".c"):
        assert Bearer.of(token, 0.0) == Bearer(token, SOMEBODY, None)


@pytest.mark.parametrize("text", ["", "  ", "Bearer ", "two words", "größe", "a\0b", unsigned({"exp": 100})])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(NoToken):
        Bearer.of(text, 100.0)


async def test_a_visitor_with_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("joserfc")
    from joserfc import jwt
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256", {"kid": "k"})
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    now = int(time.time())

    def token(**claims: object) -> str:
        made = {"sub": "alice", "iat": now, "exp": now + 3000, "aud": "kafka", "iss": "us"} | claims
        return str(jwt.encode({"alg": "ES256", "kid": "k"}, made, key))

    settings = {
        "listeners": "CLIENTS://localhost:0,PLAINTEXT://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": VALIDATORS[0],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
    }
    (tmp_path / "data").mkdir()
    with trio.fail_after(240), caplog.at_level(logging.DEBUG):
        async with embedded_broker(tmp_path / "data", **settings) as broker:
            places = {each.listener: f"localhost:{each.port}" for each in broker.endpoints}
            async with open_client([places["PLAINTEXT"]], timeout_s=60) as client:
                later = 0.0
                door = ClusterDoor(
                    [places["CLIENTS"]], "OAUTHBEARER", None, timeout_s=60, now=lambda: time.time() + later
                )
                app = app_over(client, door=door)
                clock = [1000.0]
                app._visitors._now = lambda: clock[0]
                browser = Browser(app)
                form = await browser.get("/login")
                checked(form)
                assert "OAUTHBEARER" in form.words
                assert 'name="name"' not in form.text
                for wrong in (token(aud="others"), unsigned({"sub": "alice", "exp": now + 3000}), "opaque", " "):
                    refused = await browser.post("/login", {"password": wrong})
                    assert refused.status == 403, refused.words
                    checked(refused)
                    assert wrong == " " or wrong not in refused.text
                clock[0] += 100
                good = token()
                assert (await browser.post("/login", {"password": good})).status == 303
                assert "alice from 127.0.0.1: logged in" in caplog.text
                page = await browser.get("/topics")
                assert (page.status, "alice" in page.words) == (200, True)
                assert good not in page.text
                clock[0] += 2700
                assert (await browser.get("/topics")).status == 200
                clock[0] += 300
                assert (await browser.get("/topics")).status == 303
                await browser.get("/login")
                later = 4000.0
                expired = await browser.post("/login", {"password": good})
                assert (expired.status, "has expired" in expired.words) == (403, True)
                assert good not in caplog.text
                assert good.rpartition(".")[2] not in caplog.text
