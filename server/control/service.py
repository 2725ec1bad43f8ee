"""The control channel: who may ask, and from a request to a route and back.

Answers are JSON objects; an error is `{"error": "one sentence"}` with a status of HTTP: 400 a body that cannot be used,
403 a caller that is no program on this machine, 404 and 405 no such route, 413 and 415 a body that is too long or not
called JSON, 500 a bug of ours, which the broker's log describes.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Sequence
from typing import Any, Final

from barnabas.server.control.controlled import Controlled
from barnabas.server.control.fields import Fields, WrongField
from barnabas.server.control.routes import ROUTES
from barnabas.server.control.routing import Call, Json, Refusal, Route, Router
from barnabas.server.httpd.http_server import Answer, HttpServer, Request

log = logging.getLogger("barnabas.control")

BODY_BYTES_MAX: Final = 256 * 1024
JSON: Final = "application/json"
_LOOPBACK_HOST: Final = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?")


class ControlService:
    """See the module."""

    def __init__(self, controlled: Controlled, routes: Sequence[Route] = ROUTES) -> None:
        self._controlled = controlled
        self._router = Router([Route("GET", "/", self._list, "lists what can be asked"), *routes])
        self._all = routes
        self._server = HttpServer(
            self._answer,
            log,
            "the control channel",
            methods=self._router.methods,
            body_bytes_max=BODY_BYTES_MAX,
            refuse=_error,
        )

    async def run(self, listening: Sequence[socket.socket]) -> None:
        """Serve until cancelled. The sockets are closed at the end."""
        await self._server.run(listening)

    async def _answer(self, request: Request) -> Answer:
        try:
            _check_caller(request)
            route, arguments = self._router.find(request.method, request.path)
            call = Call(arguments, Fields.of(request.body))
            return _answer(200, await route.handle(self._controlled, call))
        except WrongField as error:
            return _error(400, str(error))
        except Refusal as error:
            return _error(error.status, str(error))

    async def _list(self, controlled: Controlled, call: Call) -> Json:
        routes = [{"method": route.method, "path": route.path, "does": route.does} for route in self._all]
        return {"version": controlled.version, "routes": routes}


def _check_caller(request: Request) -> None:
    """Raises Refusal for whom a web page may have sent, and for a body that does not say what it is."""
    headers = request.headers
    host = headers.get("host", "")
    if _LOOPBACK_HOST.fullmatch(host.lower()) is None:
        raise Refusal(f"the header Host must name this machine, as 127.0.0.1 or localhost, not {host[:100]!r}", 403)
    if "origin" in headers:
        raise Refusal("the control channel is for programs, not for web pages: leave the header Origin out", 403)
    content_type = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if request.body and content_type != JSON:
        raise Refusal(f"the body must be {JSON}, not {content_type[:100]}", 415)


def _answer(status: int, value: Any) -> Answer:
    return Answer(status, [json.dumps(value).encode() + b"\n"], JSON)


def _error(status: int, why: str) -> Answer:
    return _answer(status, {"error": why})
