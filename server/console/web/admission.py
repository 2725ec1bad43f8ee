"""How many requests are under way at a time, as an ASGI application around another one.

`REQUESTS_MAX` are; `LONG_MAX` of them may be such that last (live tails, exports), so that those do not keep pages
away. Who comes then waits for `WAIT_S`, `WAITING_MAX` at a time, and is told 503 afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import trio

REQUESTS_MAX: Final = 64
LONG_MAX: Final = 24
WAITING_MAX: Final = 256
WAIT_S: Final = 5.0
_LONG: Final = ("/live-events", "/export")
_BUSY: Final = b"The console is busy with other requests; try again.\n"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Admission:
    """See the module."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._requests = trio.Semaphore(REQUESTS_MAX)
        self._long = trio.Semaphore(LONG_MAX)
        self._waiting = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rooms = [self._long, self._requests] if scope["path"].endswith(_LONG) else [self._requests]
        held: list[trio.Semaphore] = []
        try:
            if await self._enter(rooms, held):
                await self._app(scope, receive, send)
            else:
                await _refuse(send)
        finally:
            for room in held:
                room.release()

    async def _enter(self, rooms: list[trio.Semaphore], held: list[trio.Semaphore]) -> bool:
        if self._waiting >= WAITING_MAX and any(not room.value for room in rooms):
            return False
        self._waiting += 1
        try:
            with trio.move_on_after(WAIT_S):
                for room in rooms:
                    await room.acquire()
                    held.append(room)
        finally:
            self._waiting -= 1
        return len(held) == len(rooms)


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"retry-after", b"5"), (b"content-length", b"%d" % len(_BUSY))]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BUSY})
