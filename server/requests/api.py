"""One API of the broker: its key, the versions served, and its handler.

`Api` values are made in the files of `server/apis/` and listed in `barnabas.server.apis.APIS`; importing a file
registers nothing. ApiVersions, dispatch and the "listed implies handled" test read the same tuple. What few brokers are
asked is listed as a `LateApi`, whose file is imported for the first request.

A handler is one of four kinds:

- a plain function that returns the response: it runs at once, inside the reactor's round, and must never wait;
- a plain function that returns `PENDING` after storing `ctx`: its new owner calls `ctx.reply(response)` exactly once,
  later, on the same thread. The cheap way to wait (a fetch for bytes, a join for a rebalance): it needs no task;
- a generator function that yields the units of each item processed and returns the response, or PENDING: for requests
  or answers with any number of items. One turn of it runs immediately, the rest in turns with all other work
  (`barnabas.server.runtime.turns`), with a request that it may keep;
- an `async def` that returns the response, or `PENDING` after `ctx` was answered or handed over: it runs as a trio
  task of the broker, with a request that it may keep.

A connection whose request is unanswered is not read further, as in Apache Kafka, unless the API is `pipelined`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.runtime.turns import ROUND_FRAME_BYTES

if TYPE_CHECKING:
    from barnabas.server.requests.access import Access
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services


class _Pending:
    """The type of `PENDING`."""

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()

Handler = Callable[["Services", "RequestContext", Any], Any]
Learner = Callable[["Services", "RequestContext", memoryview, Any], None]
ErrorAnswer = Callable[[Any, ErrorCode, int], Any]


BETWEEN_BROKERS: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
"""Served, and listed in ApiVersions (the channel to the controller needs it), by members of a cluster only."""


TELEMETRY: Final = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))
"""Served, and listed in ApiVersions, where what clients push is shown: they ask, and push, wherever they can."""


class Old(NamedTuple):
    """Versions up to `last`, served by another handler, and never pipelined: the current one need not check."""

    last: int
    handle: Handler


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the broker's list.

    `versions`: first and last version served, inclusive. `access`: which permissions a request needs, and what a caller
    without them gets (`barnabas.server.requests.access`). `old`: the oldest versions, if they have a handler of their
    own. `on_error(request, code, version)` builds the answer when the whole request fails; without it a response with
    its top-level `error_code` set. `pipelined`: the next request of the same connection may start before this one is
    answered (answers still leave in order). `learn(services, context, frame, request)` sees each request that was
    handled, so that the next one like it takes the fast path (`barnabas.server.requests.fast_paths`); not those of
    versions before `learn_from`. `round_bytes`: longer frames are not handled within the reactor's round; of `old`
    versions none that is longer than usual.
    """

    key: ApiKey
    versions: tuple[int, int]
    handle: Handler
    access: Access = field(kw_only=True)
    old: Old | None = None
    on_error: ErrorAnswer | None = None
    pipelined: bool = False
    learn: Learner | None = None
    learn_from: int = 0
    round_bytes: int = ROUND_FRAME_BYTES

    def is_served(self, *, clustered: bool, telemetry: bool) -> bool:
        """Whether a broker serves it, in a cluster or alone, with a place for clients' metrics or without."""
        return _is_served(self.key, clustered, telemetry)

    def load(self) -> Api:
        """Itself: see `LateApi`."""
        return self


@dataclass(frozen=True, slots=True)
class LateApi:
    """A row whose `Api` is imported when it is asked: with what it needs it would be a part of each broker's start.
    module: the file that has it; is_rare: few clusters ask it at all.
    """

    key: ApiKey
    versions: tuple[int, int]
    module: str
    is_rare: bool = False

    def is_served(self, *, clustered: bool, telemetry: bool) -> bool:
        """As of `Api`."""
        return _is_served(self.key, clustered, telemetry)

    def load(self) -> Api:
        """The `Api`, whose key and versions are these. Raises ImportError, OSError."""
        found: Api = import_module(self.module).API
        return found


AnyApi = Api | LateApi


def _is_served(key: ApiKey, clustered: bool, telemetry: bool) -> bool:
    if key in TELEMETRY:
        return telemetry
    return clustered or key not in BETWEEN_BROKERS
