"""One GET over HTTP/1.1 by h11, on trio: for small documents of other services, bounded in time and size.

A connection for each request; nothing is followed, neither redirects nor proxies of the environment. A name and
password are sent by Basic (RFC 7617) and are in no error's text.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11
import trio

from barnabas.server.runtime.wording import system_says

HEAD_BYTES_MAX: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}

Open = Callable[[str, int, ssl.SSLContext | None], Awaitable[trio.abc.Stream]]
"""A connection to a host and port, with TLS or without. Raises OSError."""


class NoDocument(Exception):
    """There was no answer that can be used; the text says why."""


class TooLong(NoDocument):
    """The document is longer than it may be: the service is well."""


class Document(NamedTuple):
    """status: of HTTP."""

    status: int
    body: bytes


class Place(NamedTuple):
    """What a URL says, taken apart. `path`: without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Place:
        """Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc or parts.query:
            raise ValueError("http://HOST:PORT or https://… is expected, without a name or a password")
        if not all("!" <= character <= "~" for character in url):
            raise ValueError("a URL without blanks and letters beyond ASCII is expected")
        parts.hostname.encode("idna")  # else it is refused only when it is looked up
        port = parts.port or _PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


async def tcp(host: str, port: int, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    """An `Open`."""
    stream = await trio.open_tcp_stream(host, port)
    return stream if tls is None else trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)


async def get(
    place: Place,
    path: str,
    *,
    accept: str,
    timeout_s: float,
    bytes_max: int,
    user: str | None = None,
    open_stream: Open = tcp,
) -> Document:
    """path: behind the place's, percent-encoded. user: name and password with a colon between. Raises NoDocument."""
    try:
        with trio.fail_after(timeout_s):
            context = ssl.create_default_context() if place.scheme == "https" else None
            stream = await open_stream(place.host, place.port, context)
            try:
                return await _ask(stream, place, path, accept, user, bytes_max)
            finally:
                with trio.move_on_after(0, shield=True):
                    await trio.aclose_forcefully(stream)
    except trio.TooSlowError:
        raise NoDocument(f"{place} did not answer within {timeout_s:g} s") from None
    except (OSError, ssl.SSLError, trio.BrokenResourceError) as error:
        why = system_says(error) if isinstance(error, OSError) else str(error.__cause__ or error)
        raise NoDocument(f"{place} cannot be asked: {why}") from None
    except h11.RemoteProtocolError as error:
        raise NoDocument(f"{place} does not speak HTTP: {error}") from None


async def _ask(
    stream: trio.abc.Stream, place: Place, path: str, accept: str, user: str | None, bytes_max: int
) -> Document:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    host = f"[{place.host}]" if ":" in place.host else place.host
    port = "" if place.port == _PORTS[place.scheme] else f":{place.port}"
    headers = [("host", f"{host}{port}"), ("accept", accept), ("user-agent", "barnabas"), ("connection", "close")]
    if user is not None:
        headers.append(("authorization", f"Basic {b64encode(user.encode()).decode()}"))
    request = h11.Request(method="GET", target=f"{place.path}{path}", headers=headers)
    await stream.send_all(connection.send(request) + connection.send(h11.EndOfMessage()))
    status = 0
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(64 * 1024)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > bytes_max:
                raise TooLong(f"{place} answered with more than {bytes_max // 1024:,} KiB")
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)) or event is h11.PAUSED:
            return Document(status, bytes(body))
