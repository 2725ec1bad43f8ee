"""Metrics of one broker over HTTP, from its start to its end.

| path | answers |
| --- | --- |
| `/metrics` | all series: in OpenMetrics 1.0 to whoever prefers that, else in Prometheus' text format 0.0.4 |
| `/health/live` | 200: the event loop answers |
| `/health/ready` | 200: clients can be served; 503 and why not, a line for each reason |

The listener is open from the beginning of the start on, so that probes see a broker that recovers its logs: alive, and
not ready. Until it serves, `/metrics` has the series of the process only.

A page is made for whoever asks, but not sooner than `PAGE_S` after the last one: who comes earlier waits. All who wait
share the next page. So a page is never older than the request, and whoever asks without a pause gets no more work out
of the broker than that.
"""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.httpd.http_server import Answer, HttpServer, Request
from barnabas.server.metrics.health import obstacles
from barnabas.server.metrics.loop_watch import LoopWatch
from barnabas.server.metrics.meter import Meter
from barnabas.server.metrics.page import OPEN_METRICS, TEXT, Page
from barnabas.server.metrics.process_series import add_process
from barnabas.server.metrics.scrape import Scraper, rendered
from barnabas.server.metrics.sources import Counted, Sources
from barnabas.server.metrics.timed_disk import SyncTimes
from barnabas.server.network.listeners import CannotListen, bind, is_loopback
from barnabas.server.runtime.containment import serve
from barnabas.server.runtime.turns import Turns
from barnabas.server.settings.endpoints import ListenAddress, parse_http

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.metrics")

PAGE_S: Final = 1.0
BACKLOG: Final = 64
COMPRESSED_FROM_BYTES: Final = 1024
_GZIP_LEVEL: Final = 1


class _Rendered:
    """A page in the formats that it was asked for."""

    def __init__(self, page: Page, begun_at: float) -> None:
        self.page = page
        self.begun_at = begun_at
        self.made_at = trio.current_time()
        self.texts: dict[str, list[bytes]] = {}
        self.packed: dict[str, bytes] = {}


class MetricsService:
    """See the module. Binds at once: raises CannotListen. config(): the settings in force. version: of the program."""

    def __init__(self, config: Callable[[], BrokerConfig], offload: Offload, version: str) -> None:
        text = config().get_str("metrics.listener")
        self._listening = _bound(parse_http(text))
        self._offload = offload
        self.counted = Counted(
            Meter(trio.current_time, lambda: config().get_int("metrics.clients.max")),
            SyncTimes(),
            LoopWatch(),
            version,
        )
        self.address = _address(self._listening[0])
        if not all(map(is_loopback, self._listening)):
            log.warning("metrics are open to other machines without access control: %s", text)
        self._server = HttpServer(self._handle, log, "the metrics listener")
        self._turns = Turns(offload)
        self._sources: Sources | None = None
        self._scraper: Scraper | None = None
        self._obstacles: Callable[[], Iterator[str]] = partial(iter, ("the broker starts",))
        self._lock = trio.Lock()
        self._last: _Rendered | None = None

    # -- from the broker ---------------------------------------------------------------------------------------------

    def attach(self, sources: Sources, has_started: Callable[[], bool], is_open: Callable[[], bool]) -> None:
        """The broker is built. has_started: its start is over. is_open: it takes connections, and does not stop."""
        self._sources = sources
        self._scraper = Scraper(sources, trio.current_time)
        self._turns = sources.services.turns
        self._last = None

        def found() -> Iterator[str]:
            if not has_started():
                yield "the broker starts"
            if not is_open():
                yield "the broker stops"
            yield from obstacles(sources)

        self._obstacles = found

    async def run(self) -> None:
        """Serve until cancelled."""
        log.info("metrics are served at %s/metrics", self.address)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, log, "watching the event loop", self.counted.loop.run)
                nursery.start_soon(serve, log, "serving metrics", partial(self._server.run, self._listening))
        finally:
            self.close()
            if self._sources is not None and self._sources.foreign_ends is not None:
                await self._sources.foreign_ends.close()

    def close(self) -> None:
        """Close the listening sockets."""
        for sock in self._listening:
            sock.close()

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _handle(self, request: Request) -> Answer:
        path = request.path
        if path == "/metrics":
            return await self._metrics(request.headers)
        if path == "/health/live":
            return _lines(200, ["alive"])
        if path == "/health/ready":
            why_not = list(self._obstacles())
            return _lines(503, why_not) if why_not else _lines(200, ["ready"])
        if path == "/":
            return _lines(200, ["/metrics", "/health/live", "/health/ready"])
        return _lines(404, ["not found: there are /metrics, /health/live and /health/ready"])

    async def _metrics(self, headers: Mapping[str, str]) -> Answer:
        content_type = OPEN_METRICS if prefers_open_metrics(headers.get("accept", "")) else TEXT
        asked_at = trio.current_time()
        async with self._lock:
            last = self._last
            if last is None or last.begun_at < asked_at:
                if last is not None:
                    await trio.sleep_until(last.made_at + PAGE_S)
                begun_at = trio.current_time()
                last = self._last = _Rendered(await self._page(), begun_at)
            body = last.texts.get(content_type)
            if body is None:
                body = last.texts[content_type] = await self._turns.run(rendered(last.page, content_type))
            if not takes_gzip(headers.get("accept-encoding", "")) or sum(map(len, body)) < COMPRESSED_FROM_BYTES:
                return Answer(200, body, content_type, _VARY)
            packed = last.packed.get(content_type)
            if packed is None:
                packed = await self._offload(gzip.compress, b"".join(body), _GZIP_LEVEL)
                last.packed[content_type] = packed
            return Answer(200, [packed], content_type, (*_VARY, ("Content-Encoding", "gzip")))

    async def _page(self) -> Page:
        if self._scraper is None or self._sources is None:
            page = Page()
            add_process(page, self.counted)
            return page
        if self._sources.foreign_ends is not None:
            await self._sources.foreign_ends.refresh()
        return await self._turns.run(self._scraper.page())


_VARY: Final = (("Vary", "Accept, Accept-Encoding"),)


def prefers_open_metrics(accept: str) -> bool:
    """Whether a header Accept wants OpenMetrics at least as much as Prometheus' own format."""
    wanted = _qualities(accept)
    best = wanted.get("application/openmetrics-text", 0.0)
    return best > 0 and best >= max(wanted.get("text/plain", 0.0), wanted.get("*/*", 0.0))


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a header Accept-Encoding admits gzip."""
    wanted = _qualities(accept_encoding)
    return wanted.get("gzip", wanted.get("*", 0.0)) > 0


def _qualities(header: str) -> dict[str, float]:
    """The quality of each choice in an Accept header; what cannot be read counts as not wanted."""
    found: dict[str, float] = {}
    for choice in header.split(","):
        name, *parameters = [part.strip() for part in choice.split(";")]
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if name:
            found[name.lower()] = max(quality, found.get(name.lower(), 0.0))
    return found


def _bound(address: ListenAddress) -> list[socket.socket]:
    try:
        return bind(address, BACKLOG, -1)
    except CannotListen as error:
        raise CannotListen(f"metrics.listener: {error}", error.number) from None


def _address(sock: socket.socket) -> str:
    """As a URL that leads there from this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _lines(status: int, lines: list[str]) -> Answer:
    return Answer(status, ["".join(f"{line}\n" for line in lines).encode()])
