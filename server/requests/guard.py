"""Authorization between dispatch and the handlers, if there is an authorizer.

`guarded` puts an API's declaration (`barnabas.server.requests.access`) in front of its handler. A request of many
entries is checked in steps. Denials are merged into an answer that comes later, from a callback or a task, when it is
encoded: the request's context has an `AmendedRoute` then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.server.requests.access import TOPIC, Access, AccessCheck, Admitted, Op, Outcome, Refused
from barnabas.server.requests.api import PENDING, Handler, Learner
from barnabas.server.requests.context import RequestContext, Route

if TYPE_CHECKING:
    from barnabas.kproto import ErrorCode, Part
    from barnabas.server.network.connection import Connection
    from barnabas.server.requests.services import Services
    from barnabas.server.security.acls.authorizer import Authorizer, Permissions

T = TypeVar("T")


class AmendedRoute:
    """The route of a request that was not admitted unchanged: its answers are amended. No fast path learns from it."""

    def __init__(self, route: Route, admitted: Admitted | None) -> None:
        self._route = route
        self._admitted = admitted
        self._done: Any = None
        self.pipelined = route.pipelined
        self.name = route.name
        self.elements_max = route.elements_max
        self.decode = route.decode
        self.handle = route.handle

    @property
    def taken(self) -> int:
        return self._route.taken

    @taken.setter
    def taken(self, count: int) -> None:
        self._route.taken = count

    def is_large(self, response: Any) -> bool:
        _to_its_end(self.amend(response))  # here, as it may be encoded in a thread
        return self._route.is_large(response)

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]:
        _to_its_end(self.amend(response))
        return self._route.encode_frame(correlation_id, response)

    def error_response(self, request: Any, code: ErrorCode) -> Any:
        """The error for what was admitted; the rest is denied all the same."""
        return self._route.error_response(request if self._admitted is None else self._admitted.request, code)

    def amend(self, response: Any) -> Generator[int, None, None]:
        """Amend a response, once, in steps."""
        if response is not self._done and self._admitted is not None and self._admitted.amend is not None:
            yield from self._admitted.amend(response)
        self._done = response


def current_permissions(context: RequestContext, authorizer: Authorizer) -> Permissions:
    """What the peer of a connection may do."""
    connection = context.connection
    permissions = connection.permissions
    if permissions is None or permissions.version != authorizer.version:
        permissions = connection.permissions = authorizer.permissions(connection.session)
    return permissions


def describable(services: Services, context: RequestContext) -> Callable[[str], bool] | None:
    """Whether the peer may describe a topic, by name, for a later look-up; None: it may describe all."""
    if services.authorizer is None:
        return None
    permissions = current_permissions(context, services.authorizer)
    return partial(permissions.allows, Op.DESCRIBE, TOPIC)


def readable(services: Services, context: RequestContext) -> Callable[[str], bool] | None:
    """Whether the peer may read a topic, by name, for a later look-up; None: it may read all."""
    if services.authorizer is None:
        return None
    permissions = current_permissions(context, services.authorizer)
    return partial(permissions.allows, Op.READ, TOPIC)


def guarded(access: Access, handle: Handler, authorizer: Authorizer, *, at_once: bool) -> Handler:
    """`handle` for authorized callers. at_once: check in a single step, however many entries there are, because the
    requests of a connection must be handled in order.
    """

    def decide(services: Services, context: RequestContext, request: Any) -> Generator[int, None, Outcome]:
        check = AccessCheck(services, context, request, current_permissions(context, authorizer))
        outcome = yield from access(check)
        check.note()
        if isinstance(outcome, Refused):
            context.route = AmendedRoute(context.route, None)
        elif outcome.amend is not None or outcome.closes:
            context.route = AmendedRoute(context.route, outcome)
        return outcome

    def in_steps(services: Services, context: RequestContext, request: Any) -> Generator[int, None, Any]:
        outcome = yield from decide(services, context, request)
        if isinstance(outcome, Refused):
            return _refused(context, outcome)
        response = handle(services, context, outcome.request)
        if outcome.closes:
            context.connection.abort()
        if type(response) is GeneratorType:
            response = yield from response
        if type(context.route) is AmendedRoute and response is not PENDING and type(response) is not CoroutineType:
            yield from context.route.amend(response)
        return response

    def in_one_go(services: Services, context: RequestContext, request: Any) -> Any:
        outcome = _to_its_end(decide(services, context, request))
        if isinstance(outcome, Refused):
            return _refused(context, outcome)
        response = handle(services, context, outcome.request)
        if outcome.closes:
            context.connection.abort()
        return response

    return in_one_go if at_once else in_steps


def _refused(context: RequestContext, outcome: Refused) -> Any:
    if outcome.response is not None:
        return outcome.response
    context.connection.abort()
    return PENDING


def _to_its_end(steps: Generator[int, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class _Watch:
    """A `FastPath` that handles nothing, and precedes the others of a connection: when an ACL has changed, it removes
    them, since each was learnt from a request that was admitted before.
    """

    __slots__ = ("_authorizer", "_version")

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._version = authorizer.version

    def take(self, connection: Connection, frame: memoryview) -> None:
        if self._authorizer.version != self._version:
            connection.fast_paths.clear()  # itself, too; the connection's loop over the list then ends

    def take_run(self, connection: Connection, view: memoryview, position: int) -> None:
        self.take(connection, view)


def learn_if_admitted(learn: Learner, authorizer: Authorizer) -> Learner:
    """`learn` from requests that were admitted unchanged, with fast paths that are dropped when an ACL changes."""

    def learn_admitted(services: Services, context: RequestContext, frame: memoryview, request: Any) -> None:
        if type(context.route) is AmendedRoute:
            return
        learn(services, context, frame, request)
        paths = context.connection.fast_paths
        if paths and type(paths[0]) is not _Watch:
            paths.insert(0, _Watch(authorizer))

    return learn_admitted
