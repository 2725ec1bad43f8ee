"""The console as an ASGI application, by Starlette: routes, visitors, forms and answers, put together.

Every answer, also an error's, has the headers of `web/guard.py`. A failure in a page is an error page: what the cluster
refused keeps its words, a bug is logged once, and neither harms another visit.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas.server.client.failures import ClientError
from barnabas.server.console.avro.book import Book
from barnabas.server.console.desk import Desk
from barnabas.server.console.doors import Door, NoEntry
from barnabas.server.console.history import History
from barnabas.server.console.openapi import document
from barnabas.server.console.routes import PAGES, SHORT, Page
from barnabas.server.console.web.audit import Audit
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.guard import HEADERS, is_known_host, is_of_this_origin
from barnabas.server.console.web.proxies import Proxies
from barnabas.server.console.web.rendering import TEMPLATES, Templates, link
from barnabas.server.console.web.segments import named
from barnabas.server.console.web.view import SAID, Answer, Done, Refusal, Sent, View, of_client
from barnabas.server.console.web.visit import Visit
from barnabas.server.console.web.visitors import Visitor, Visitors
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.console")

STATIC: Final = TEMPLATES.parent / "static"
FORM_BYTES_MAX: Final = 16 * 1024 * 1024
"""A record in base64, percent-encoded, may be three times as long."""
LOGIN_BYTES_MAX: Final = 64 * 1024
FORMS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all forms that are being read."""
FORM_S: Final = 60.0
"""How long sending a form may take."""
REQUEST_S: Final = 60.0
"""How long a page may take to begin its answer; each request to a broker has a time of its own."""
ENDED_S: Final = 5.0
"""How long connections may outlast a log-in that has ended by itself."""
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
TOO_MANY: Final = "Too many wrong passwords; wait some seconds."
_JSON: Final = "application/json"
_SAFE: Final = ":/%#?=@[]!$&'()*+,;~"
"""What a URL may hold beside letters and digits."""
_HTML: Final = "text/html; charset=utf-8"
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Options:
    """host_names: by which the console may be called, beside addresses and localhost. where: the brokers' address, as
    it was given.
    """

    where: str
    version: str
    is_read_only: bool = False
    proxies: Proxies = field(default_factory=Proxies)
    host_names: Collection[str] = ()


class Console:
    """An ASGI application; see the module. desk: whoever has none of his own shares it. now_ms(): the wall clock. door:
    None: everybody is in. book: of schemas for Avro.
    """

    def __init__(
        self,
        desk: Desk,
        visitors: Visitors,
        options: Options,
        now_ms: Callable[[], int],
        door: Door | None = None,
        book: Book | None = None,
    ) -> None:
        self._desk = desk
        self._visitors = visitors
        self._door = door
        self._book = book or Book()
        self._options = options
        self._now_ms = now_ms
        self._form_bytes = 0
        self.history = History()
        self._audit = Audit()
        self._templates = Templates()
        self._static = _static_files()
        self._assets = {name: f"/static/{name}?v={file.tag}" for name, file in self._static.items()}
        self._app = Starlette(routes=list(self._routes()), exception_handlers={HTTPException: self._no_page})
        self._app.router.redirect_slashes = False

    def _routes(self) -> list[Route]:
        found = [
            Route("/static/{name}", self._file, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]
        for page in PAGES:
            methods = ["GET"] if page.change is None else ["GET", "POST"]
            found.append(Route(page.path, partial(self._answer, page, False), methods=methods))
            if page.is_json_too:
                found.append(Route(page.json_path, partial(self._answer, page, True), methods=methods))
        found += [Route(path, partial(self._lead, to), methods=["GET"]) for path, to in SHORT.items()]
        return found

    # -- around everything -------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        scope = self._by_proxies(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["scheme"] == "https":
                    for cookie in headers.getlist("set-cookie"):  # one at most
                        headers["set-cookie"] = f"{cookie}; Secure"
                for name, value in HEADERS:
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        app: ASGIApp = self._app
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1 or not is_known_host(hosts[0], self._options.host_names):
            app = Response(
                "This console is not known by the name in the request's header Host.\n"
                "It answers to addresses, to localhost, and to the names given with --host.\n",
                421,
                media_type="text/plain",
            )
        await app(scope, receive, guarded)

    def _by_proxies(self, scope: Scope) -> Scope:
        """As it was before it came to a proxy that is trusted."""
        client = scope.get("client")
        proxies = self._options.proxies
        if client is None or not proxies.are_trusted(client[0]):
            return scope
        headers = Headers(scope=scope)
        visitor = proxies.visitor(client[0], headers.getlist("x-forwarded-for"))
        scheme = headers.get("x-forwarded-proto", "").strip().lower()
        return {**scope, "client": (visitor, 0), "scheme": "https" if scheme == "https" else scope["scheme"]}

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _answer(self, page: Page, is_json: bool, request: Request) -> Response:
        visitor = self._visitor(request)
        is_json = is_json or _wants_json(request.headers.get("accept", ""))
        if not visitor.is_in:
            return self._must_log_in(request, visitor, is_json)
        try:
            visit = self._visit(request, visitor, is_json)
            if request.method == "POST":
                answer: Answer = await self._change(page, request, visitor, visit)
            else:
                with trio.fail_after(REQUEST_S):
                    answer = await page.show(visit)
            return self._response(page, request, visitor, visit, answer)
        except Exception as error:
            refusal = self._refusal(page, request, error)
            return self._error(request, visitor, refusal.status, str(refusal), is_json, page)

    def _visitor(self, request: Request) -> Visitor:
        return self._visitors.of("; ".join(request.headers.getlist("cookie")))

    def _visit(self, request: Request, visitor: Visitor, is_json: bool) -> Visit:
        try:
            names = {key: named(value) for key, value in request.path_params.items()}
        except ValueError as error:
            raise Refusal(404, str(error)) from None
        query = Fields.parse(request.scope["query_string"])
        resume = request.headers.get("last-event-id", "")
        held = self._visitors.held(visitor)
        desk = held if isinstance(held, Desk) else self._desk
        return Visit(desk, names, query, Fields(), self._now_ms(), self.history, is_json, resume, self._book)

    async def _change(self, page: Page, request: Request, visitor: Visitor, visit: Visit) -> Done | View:
        """POST. One line in the audit, whatever comes of it."""
        assert page.change is not None
        who, where = visitor.who, _address(request)
        try:
            if self._options.is_read_only:
                raise Refusal(403, "this console is read-only")
            form = await self._form(request, visitor)
            try:
                with trio.fail_after(REQUEST_S):
                    answer = await page.change(replace(visit, form=form))
            finally:
                visit.desk.changed()
        except ClientDisconnect:
            self._audit.refused(who, where, page.name, visit.names, 400, "the visitor left before all was sent")
            raise
        except trio.Cancelled:
            why = "it was cut off: whether it was done is not known"
            self._audit.refused(who, where, page.name, visit.names, 499, why)
            raise
        except Exception as error:
            refusal = self._refusal(page, request, error)
            self._audit.refused(who, where, page.name, visit.names, refusal.status, str(refusal))
            raise refusal from None
        if isinstance(answer, Done):
            self._audit.done(who, where, answer.what)
        else:
            why = "; ".join(map(str, answer.data.get("problems", ())))
            self._audit.refused(who, where, page.name, visit.names, answer.status, why)
        return answer

    async def _form(self, request: Request, visitor: Visitor, bytes_max: int = FORM_BYTES_MAX) -> Fields:
        """What was sent, if it was sent by a page of ours."""
        if not is_of_this_origin(request.headers):
            raise Refusal(403, "the request comes from a page of another origin")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise Refusal(415, f"a form is expected ({_FORM})")
        form = Fields.parse(await self._body(request, bytes_max))
        token = request.headers.get("x-csrf-token") or form.raw("token")
        if not self._visitors.is_token(visitor, token):
            raise Refusal(403, "the form is not of this visit; load its page again")
        return form

    async def _body(self, request: Request, bytes_max: int) -> bytes:
        body = bytearray()
        try:
            with trio.fail_after(FORM_S):
                async for chunk in request.stream():
                    body += chunk
                    self._form_bytes += len(chunk)
                    if len(body) > bytes_max:
                        raise Refusal(413, f"more than {bytes_max // 1024:,} KiB cannot be sent at once")
                    if self._form_bytes > FORMS_BYTES_MAX:
                        raise Refusal(503, "too much is being sent to this console; try again")
        except trio.TooSlowError:
            raise Refusal(408, f"the form was not sent within {FORM_S:g} s") from None
        finally:
            self._form_bytes -= len(body)
        return bytes(body)

    def _refusal(self, page: Page, request: Request, error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, Unclear):
            return Refusal(400, str(error))
        if isinstance(error, ClientError):
            return of_client(error)
        if isinstance(error, ExceptionGroup):
            known = [self._refusal(page, request, each) for each in error.exceptions if isinstance(each, ClientError)]
            if len(known) == len(error.exceptions):
                return known[0]
        if isinstance(error, trio.TooSlowError):
            done = "; whether it was done is not known" if request.method == "POST" else ""
            return Refusal(504, f"it took longer than {REQUEST_S:g} s{done}")
        if isinstance(error, ClientDisconnect):
            return Refusal(400, "the visitor left before all was sent")
        contain(log, f"{request.method} {_path(request)[:200]!r} ({page.name})", error)
        return Refusal(500, "internal error; the console's log says more")

    # -- answers -----------------------------------------------------------------------------------------------------

    def _response(self, page: Page, request: Request, visitor: Visitor, visit: Visit, answer: Answer) -> Response:
        if isinstance(answer, Sent):
            headers = {}
            if answer.name is not None:
                headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(answer.name, safe='')}"
            return _Stream(answer.pieces, headers, answer.content_type)
        if isinstance(answer, Done):
            if visit.is_json:
                said = {"done": SAID[answer.said], "location": answer.location, **answer.data}
                return self._with_cookie(visitor, _json(said))
            if answer.view is not None:
                body = self._page(request, visitor, answer.view, page, SAID[answer.said])
                return self._with_cookie(visitor, Response(body, media_type=_HTML))
            glue = "&" if "?" in answer.location else "?"
            return self._with_cookie(visitor, _see(f"{answer.location}{glue}said={answer.said}"))
        if visit.is_json:
            return self._with_cookie(visitor, _json({**answer.data, "token": visitor.token}, answer.status))
        told = SAID.get(request.query_params.get("said", "")) if request.method == "GET" else None
        body = self._page(request, visitor, answer, page, told)
        return self._with_cookie(visitor, Response(body, answer.status, media_type=_HTML))

    def _page(self, request: Request, visitor: Visitor, view: View, page: Page | None, said: str | None) -> bytes:
        path = _path(request)
        json_path = ("/index.json" if path == "/" else f"{path}.json") if page and page.is_json_too else None
        query = request.scope["query_string"].decode("latin-1")
        console = {
            "title": view.title,
            "page": "" if page is None else page.name,
            "section": "" if page is None else page.section,
            "path": path,
            "json_url": f"{json_path}?{query}" if json_path and query else json_path,
            "said": said,
            "token": visitor.token,
            "is_read_only": self._options.is_read_only,
            "has_login": self._door is not None,
            "who": visitor.who,
            "is_in": visitor.is_in,
            "where": self._options.where,
            "version": self._options.version,
            "assets": self._assets,
        }
        return self._templates.render(view.template, {**view.data, "console": console})

    def _error(
        self, request: Request, visitor: Visitor, status: int, text: str, is_json: bool, page: Page | None
    ) -> Response:
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Error"
        if is_json:
            return self._with_cookie(visitor, _json({"error": {"status": status, "message": text}}, status))
        data = {"status": status, "phrase": phrase, "text": text, "is_read": request.method == "GET"}
        body = self._page(request, visitor, View("error", phrase, data), page, None)
        return self._with_cookie(visitor, Response(body, status, media_type=_HTML))

    async def _no_page(self, request: Request, error: Exception) -> Response:
        """What no route answers."""
        assert isinstance(error, HTTPException)
        visitor = self._visitor(request)
        is_json = _path(request).endswith(".json") or _wants_json(request.headers.get("accept", ""))
        text = {404: "there is no such page", 405: f"{request.method} cannot be done here"}.get(
            error.status_code, str(error.detail)
        )
        response = self._error(request, visitor, error.status_code, text, is_json, None)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    def _with_cookie(self, visitor: Visitor, response: Response) -> Response:
        if visitor.is_new:
            response.headers.append("set-cookie", self._visitors.cookie(visitor))
        return response

    async def _lead(self, to: str, request: Request) -> Response:
        """names stay as they are written, so they need no decoding."""
        path = to
        for key, value in request.path_params.items():
            path = path.replace(f"{{{key}}}", quote(value, safe="~"))
        return RedirectResponse(path, 307)

    async def _file(self, request: Request) -> Response:
        """A dictionary knows which files there are: a path leads nowhere else."""
        file = self._static.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        headers = {"cache-control": "public, max-age=31536000, immutable", "content-type": file.content_type}
        return Response(file.data, 200, headers)

    async def _openapi(self, request: Request) -> Response:
        return _json(document(self._options.version))

    # -- log-in ------------------------------------------------------------------------------------------------------

    def _must_log_in(self, request: Request, visitor: Visitor, is_json: bool) -> Response:
        if is_json or request.method != "GET":
            return self._error(request, visitor, 401, "log in first", is_json, None)
        query = request.scope["query_string"].decode("latin-1")
        wanted = f"{_path(request)}?{query}" if query else _path(request)
        return self._with_cookie(visitor, _see(link("/login", next=None if wanted == "/" else wanted)))

    async def _login(self, request: Request) -> Response:
        visitor = self._visitor(request)
        if self._door is None:
            return _see("/")
        wanted = request.query_params.get("next", "/")
        if not _is_ours(wanted):
            wanted = "/"
        problem, status, name = None, 200, ""
        if request.method == "POST":
            address = _address(request)
            try:
                form = await self._form(request, visitor, LOGIN_BYTES_MAX)
                name = form.text("name")
                if not self._visitors.may_try(address):
                    raise Refusal(429, TOO_MANY)
                entrance = await self._door.enter(name, form.raw("password"))
                known = self._visitors.admit(visitor, address, entrance.who, entrance.desk, entrance.lasts_s)
                await self._close_gone()
                self._audit.done(entrance.who, address, "logged in")
                return self._with_cookie(known, _see(wanted))
            except (Refusal, Unclear) as error:
                problem, status = str(error), getattr(error, "status", 400)
            except NoEntry as error:
                problem, status = str(error), 403
                if self._visitors.must_wait(address):
                    problem, status = f"{error} {TOO_MANY}", 429
            self._audit.refused(name or "somebody", address, "login", {}, status, problem)
        asks = {"asks_name": self._door.asks_name, "asks_token": self._door.asks_token}
        data = {"problem": problem, "next": wanted, **asks, "name": name}
        body = self._page(request, visitor, View("login", "Log in", data, status), None, None)
        return self._with_cookie(visitor, Response(body, status, media_type=_HTML))

    async def _logout(self, request: Request) -> Response:
        visitor = self._visitor(request)
        try:
            await self._form(request, visitor, LOGIN_BYTES_MAX)
        except (Refusal, Unclear) as error:
            return self._error(request, visitor, getattr(error, "status", 400), str(error), False, None)
        self._visitors.log_out(visitor)
        await self._close_gone()
        self._audit.done(visitor.who, _address(request), "logged out")
        return _see("/")

    async def end_log_ins(self) -> None:
        """Looks for log-ins that have ended by themselves, as with their token, until this is cancelled."""
        while True:
            await trio.sleep(ENDED_S)
            await self._close_gone()

    async def _close_gone(self) -> None:
        """The connections of those who are not logged in any more, and with them their live tails."""
        for desk in self._visitors.take_gone():
            if isinstance(desk, Desk):
                await desk.client.aclose()


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    content_type: str
    tag: str


def _static_files() -> dict[str, _File]:
    found = {}
    for path in sorted(STATIC.iterdir()):
        if path.suffix in _TYPES:
            data = path.read_bytes()
            found[path.name] = _File(data, _TYPES[path.suffix], hashlib.sha256(data).hexdigest()[:12])
    return found


class _Stream(StreamingResponse):
    """Pieces as they come. A stream whose answer has begun cannot become an error page: it ends there, and the log says
    why. Whatever it ends by, what makes the pieces is closed.
    """

    def __init__(self, pieces: AsyncGenerator[bytes], headers: Mapping[str, str], content_type: str) -> None:
        super().__init__(pieces, 200, headers, content_type)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            try:
                await super().__call__(scope, receive, send)
            except ClientError as error:
                log.warning("%s was cut short: %s", scope["path"], error)
                raise


def _json(data: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(data, separators=(",", ":")).encode() + b"\n", status, media_type=_JSON)


def _see(location: str) -> Response:
    return Response(b"", 303, {"location": quote(location, safe=_SAFE)})


def _path(request: Request) -> str:
    """As it stands in a link: names that were typed may hold anything."""
    return quote(request.scope["path"], safe="/~")


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else "?"


def _wants_json(accept: str) -> bool:
    return _JSON in accept and "text/html" not in accept


def _is_ours(path: str) -> bool:
    """Whether a path stays on this console: `//host` and `/\\host` lead away, as browsers read them."""
    return path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
