"""Fetches the keys that tokens are signed with, in a thread; `barnabas.server.security.sasl.jwks` says when.

No log-in waits for it: a token whose key is missing is rejected, and has the keys fetched sooner. `http://` and
`https://` (with the system's certificate authorities, redirects to http(s) followed), or a file.
"""

from __future__ import annotations

import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import trio

from barnabas.server.security.sasl.jwks import BadKeySet, Jwks

log = logging.getLogger("barnabas.security")

BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 10.0
"""Time limit of each step of a fetch."""
LIMIT_S: Final = 30.0
"""Time limit of a whole fetch."""
LOOK_S: Final = 1.0
"""How often to check whether a fetch is due: a log-in may have requested one."""


class CannotFetch(Exception):
    """The document could not be fetched; the message says why."""


Get = Callable[[str], Awaitable[bytes]]
"""The document at a URL. Raises CannotFetch."""


async def get_in_thread(url: str) -> bytes:
    """Raises CannotFetch, also after `LIMIT_S`. When cancelled, it abandons the thread."""
    with trio.move_on_after(LIMIT_S):
        return await trio.to_thread.run_sync(fetch, url, abandon_on_cancel=True)
    raise CannotFetch(f"no complete answer within {LIMIT_S:g} s")


class JwksFetcher:
    """Keeps `jwks` up to date with the document at `url`."""

    def __init__(self, jwks: Jwks, url: str, get: Get = get_in_thread) -> None:
        self._jwks = jwks
        self._url = url
        self._get = get
        self._was_well = True

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until cancelled; started after the first fetch, failed or not."""
        await self._fetch()
        task_status.started()
        while True:
            await trio.sleep(min(LOOK_S, max(0.0, self._jwks.next_fetch - trio.current_time())))
            if self._jwks.next_fetch <= trio.current_time():
                await self._fetch()

    async def _fetch(self) -> None:
        try:
            text = await self._get(self._url)
            self._jwks.fetched(text, trio.current_time())
        except CannotFetch as error:
            self._jwks.failed(trio.current_time())
            self._failed(error)
        except BadKeySet as error:
            self._failed(error)
        else:
            log.log(logging.DEBUG if self._was_well else logging.INFO, "fetched the keys at %s", self._url)
            self._was_well = True

    def _failed(self, error: Exception) -> None:
        """Log a failure once, not with each retry."""
        level = logging.ERROR if self._was_well else logging.DEBUG
        kept = "keeping the present keys" if self._jwks.has_keys else "rejecting all tokens"
        log.log(level, "cannot fetch the keys at %s, %s: %s", self._url, kept, error)
        self._was_well = False


def fetch(url: str) -> bytes:
    """The document at `url`; blocks. Raises CannotFetch."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            text = Path(unquote(parts.path)).read_bytes()
        else:
            request = urllib.request.Request(url, headers={"Accept": "application/json"})
            context = ssl.create_default_context() if parts.scheme == "https" else None
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                text = answer.read(BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise CannotFetch(f"the server answered {error.code}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise CannotFetch(str(reason)) from None
    except Exception as error:  # http.client's, for what is no HTTP
        raise CannotFetch(type(error).__name__) from None
    if len(text) > BYTES_MAX:
        raise CannotFetch(f"more than {BYTES_MAX} bytes")
    return text
