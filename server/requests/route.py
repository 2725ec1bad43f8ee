"""One API in one version: decodes requests, handles them, and encodes answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from barnabas.kproto import ApiKey, ErrorCode, Part, decoder, encoder, request_class, response_class
from barnabas.kproto.frame import response_frame
from barnabas.server.network.request_bounds import bounds_of
from barnabas.server.requests.api import AnyApi
from barnabas.server.requests.guard import guarded, learn_if_admitted
from barnabas.server.runtime.turns import LARGE_ANSWER_ITEMS, ROUND_FRAME_BYTES, Arrays

if TYPE_CHECKING:
    from barnabas.server.security.acls.authorizer import Authorizer


@cache
def _arrays_of_response(key: ApiKey) -> Arrays:
    """One for all versions. Made early, not for the first large answer: it stays in memory, and would lie among
    short-lived objects and keep their pages.
    """
    return Arrays(response_class(key).__description__.struct)


class Route:
    """One (API, version): its codec functions, compiled when first used. authorizer: checks permissions before the
    handler. `round_bytes`: longer frames are not handled within the reactor's round. `taken`: see
    `barnabas.server.network.connection.Counting`.
    """

    __slots__ = (
        "_arrays",
        "api",
        "decode",
        "elements_max",
        "encode",
        "handle",
        "is_async",
        "learn",
        "pipelined",
        "round_bytes",
        "taken",
        "version",
    )

    def __init__(self, listed: AnyApi, version: int, authorizer: Authorizer | None = None) -> None:
        api = self.api = listed.load()
        self.version = version
        self.taken = 0
        is_old = api.old is not None and version <= api.old.last
        self.handle = api.old.handle if api.old is not None and is_old else api.handle
        self.pipelined = api.pipelined and not is_old
        self.learn = None if is_old or version < api.learn_from else api.learn
        self.round_bytes = ROUND_FRAME_BYTES if is_old else api.round_bytes
        if self.pipelined:
            self.round_bytes = 0x7FFFFFFF
        self.is_async = inspect.iscoroutinefunction(self.handle)
        if authorizer is not None:
            self.handle = guarded(api.access, self.handle, authorizer, at_once=self.pipelined)
            self.learn = learn_if_admitted(self.learn, authorizer) if self.learn else None
        decode = decoder(request_class(api.key), version)
        # A task must not keep views of the round's receive buffer.
        self.decode: Callable[[Any, int, int], tuple[Any, int]] = (
            (lambda frame, offset, room: decode(bytes(frame), offset, room)) if self.is_async else decode
        )
        self.elements_max = bounds_of(api.key).elements
        self.encode: Callable[[Any], list[Part]] = encoder(response_class(api.key), version)
        self._arrays = _arrays_of_response(api.key)

    @property
    def name(self) -> str:
        """The API's name, for the log."""
        return self.api.key.name

    def is_large(self, response: Any) -> bool:
        """Whether an answer is to be encoded off the loop."""
        return self._arrays.has_more_than(LARGE_ANSWER_ITEMS, response)

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]:
        return response_frame(self.api.key, self.version, correlation_id, self.encode(response))

    def error_response(self, request: Any, code: ErrorCode) -> Any:
        """The answer for a request that failed as a whole: as Apache Kafka's, with the error at each item where the
        response has no top-level error. A test covers all APIs and versions.
        """
        if self.api.on_error is not None:
            return self.api.on_error(request, code, self.version)
        response: Any = response_class(self.api.key)()
        response.error_code = code
        return response
