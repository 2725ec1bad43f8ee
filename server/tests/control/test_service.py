"""The control channel: who may ask, what is refused and how, and that it costs nothing while nobody asks."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from typing import Any

import pytest

from barnabas.server.control import service
from barnabas.server.control.controlled import Controlled
from barnabas.server.control.fields import Fields, WrongField
from barnabas.server.control.listener import ControlListener
from barnabas.server.control.routes import ROUTES
from barnabas.server.control.routing import Call, Json, Refusal, Route, Router
from barnabas.server.network.listeners import CannotListen
from barnabas.server.settings.endpoints import parse_control
from barnabas.server.tests.control.kit import controlled_broker


async def test_what_there_is() -> None:
    async with controlled_broker() as channel:
        said = await channel.ask("GET", "/")
        assert said.status == 200
        assert said.headers["content-type"] == "application/json"
        assert said.value["version"] == "1.2.3"
        assert said.value["routes"] == [
            {"method": route.method, "path": route.path, "does": route.does} for route in ROUTES
        ]
        broker = (await channel.ask("GET", "/v1/broker")).value
        assert broker["bootstrap"] == channel.broker.bootstrap
        assert broker["cluster_id"] == channel.broker.services.image.cluster_id


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "error"),
    [
        ("GET", "/v1/nothing", {}, 404, "there is no /v1/nothing; / lists what there is"),
        ("GET", "/v1/broker/", {}, 404, "there is no /v1/broker/; / lists what there is"),
        ("GET", "/v1/../etc/passwd", {}, 404, "there is no /v1/../etc/passwd; / lists what there is"),
        ("POST", "/v1/broker", {"body": {}}, 405, "/v1/broker is asked with GET, not with POST"),
        ("PUT", "/v1/broker", {}, 405, "only DELETE and GET and POST are served"),
        ("GET", "/v1/broker", {"body": {"a": 1}}, 400, 'there is no field "a"; there are: none'),
        ("POST", "/v1/faults", {"raw": b"{"}, 400, "the body is not JSON"),
        ("POST", "/v1/faults", {"raw": b"[" * 100_000}, 400, "the body is not JSON"),
        ("POST", "/v1/faults", {"raw": b"\xff"}, 400, "the body is not JSON"),
        ("POST", "/v1/faults", {"raw": b"[1]"}, 400, "the body must be a JSON object"),
        ("POST", "/v1/faults", {"body": {}, "content_type": "text/plain"}, 415, "the body must be application/json"),
        ("POST", "/v1/faults", {"raw": bytes(service.BODY_BYTES_MAX + 1)}, 413, "the body is too long"),
        ("GET", "/", {"host": "evil.example"}, 403, "the header Host must name this machine"),
        ("GET", "/", {"host": "127.0.0.1.evil.example"}, 403, "the header Host must name this machine"),
        ("GET", "/", {"host": "localhost@evil.example"}, 403, "the header Host must name this machine"),
        ("GET", "/", {"origin": "http://evil.example"}, 403, "the control channel is for programs"),
        ("GET", "/", {"origin": "null"}, 403, "the control channel is for programs"),
    ],
)
async def test_refusals(method: str, path: str, options: dict[str, Any], status: int, error: str) -> None:
    async with controlled_broker() as channel:
        said = await channel.ask(method, path, **options)
        assert said.status == status
        assert list(said.value) == ["error"]
        assert said.value["error"].startswith(error)
        assert "\n" not in said.value["error"]
        assert (await channel.ask("GET", "/v1/broker")).status == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"])
async def test_names_of_this_machine(host: str) -> None:
    async with controlled_broker() as channel:
        assert (await channel.ask("GET", "/", host=host)).status == 200


async def test_a_bug_of_a_route(trouble: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(controlled: Controlled, call: Call) -> Json:
        raise RuntimeError("a bug")

    monkeypatch.setattr(service.ControlService.__init__, "__defaults__", ((Route("GET", "/bug", broken, "fails"),),))
    async with controlled_broker() as channel:
        said = await channel.ask("GET", "/bug")
        assert (said.status, said.value) == (500, {"error": "internal error; the broker's log says more"})
    assert [record.getMessage() for record in trouble] == ["answering '/bug' failed"]
    trouble.clear()


# -- the address -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
def test_loopback(text: str) -> None:
    if text.startswith("[") and not socket.has_ipv6:
        pytest.skip("no IPv6")
    listener = ControlListener(parse_control(text))
    listener.close()
    assert listener.url.startswith(("http://127.0.0.1:", "http://[::1]:"))


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:0"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(CannotListen, match=r"--control: .* is not an address of loopback, such as 127\.0\.0\.1"):
        ControlListener(parse_control(text))


def test_a_port_that_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CannotListen, match=r"--control: cannot listen on control://127\.0\.0\.1:.*another program"),
    ):
        ControlListener(parse_control(f"127.0.0.1:{taken.getsockname()[1]}"))


@pytest.mark.parametrize("text", ["", "127.0.0.1", ":80", "http://127.0.0.1:80", "127.0.0.1:65536", "a b:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="must be written as HOST:PORT"):
        parse_control(text)


LOADED = """
import sys
import barnabas.server.broker.process
from barnabas.server.control import listener
ours = "barnabas.server.control", "barnabas.server.requests.faults", "h11"
print([name for name in sys.modules if name.startswith(ours)])
"""


def test_nothing_is_loaded_before_somebody_asks() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['barnabas.server.control', 'barnabas.server.control.listener']\n"


# -- parts -----------------------------------------------------------------------------------------------------------


async def _handle(controlled: Controlled, call: Call) -> Json: ...


def test_routes_with_arguments() -> None:
    router = Router([Route("GET", "/a/{x}/b/{y}", _handle, ""), Route("GET", "/a/{x}", _handle, "")])
    assert router.find("GET", "/a/1/b/t%2Fu")[1] == {"x": "1", "y": "t/u"}
    assert router.find("GET", "/a/")[1] == {"x": ""}
    with pytest.raises(Refusal):
        router.find("GET", "/a")


def test_routes_are_told_apart_and_described() -> None:
    seen = [(route.method, route.path) for route in ROUTES]
    assert len(set(seen)) == len(seen)
    for route in ROUTES:
        assert route.path.startswith("/v1/")
        assert route.does
        assert not route.does.endswith(".")


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda f: f.text("n"), "n must be a text that is not empty, not 1"),
        (lambda f: f.text("x", is_needed=True), "x must be a text that is not empty, not null"),
        (lambda f: f.text("e"), 'e must be a text that is not empty, not ""'),
        (lambda f: f.integer("n", least=2), "n must be a whole number from 2 to 9223372036854775807, not 1"),
        (lambda f: f.integer("b"), "b must be a whole number from 0 to 9223372036854775807, not true"),
        (lambda f: f.number("s", least=0, most=1), 's must be a number from 0 to 1, not "text"'),
        (lambda f: f.number("b", least=0, most=1), "b must be a number from 0 to 1, not true"),
        (lambda f: f.number("huge", least=0, most=1), f"huge must be a number from 0 to 1, not {10**39}…"),
        (lambda f: f.number("nan", least=0, most=1), "nan must be a number from 0 to 1, not NaN"),
        (lambda f: f.flag("n"), "n must be true or false, not 1"),
        (lambda f: f.end(), 'there is no field "n"; there are: none'),
    ],
)
def test_fields(read: Any, error: str) -> None:
    with pytest.raises(WrongField) as caught:
        read(Fields.of(b'{"n": 1, "s": "text", "b": true, "e": "", "nan": NaN, "huge": %d}' % 10**400))
    assert str(caught.value) == error


def test_good_fields() -> None:
    fields = Fields.of(b'{"n": 1, "s": "text", "b": true, "x": 0.5}')
    assert (fields.integer("n"), fields.text("s"), fields.flag("b"), fields.number("x", least=0, most=1)) == (
        1,
        "text",
        True,
        0.5,
    )
    assert (fields.integer("a"), fields.text("a"), fields.flag("a"), fields.number("a", least=0, most=1)) == (
        None,
        None,
        False,
        None,
    )
    fields.end()
    Fields.of(b"").end()
