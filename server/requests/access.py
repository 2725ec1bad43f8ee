"""Authorization of requests: declarations of the permissions that each API needs.

`Api.access` says which permissions a request needs, and what a caller without them gets. Declarations are combinations
of three outcomes:

- the whole request is refused (`needs`): its answer is the API's answer for "the whole request failed";
- single entries are refused (`for_each`): they are taken out of the request, the rest is served, and their answers –
  those of a request that names nothing else – are put between the others;
- what the caller may not see is left out of the answer (`amended`).

`both` takes several after each other, `unrestricted` needs nothing, and what follows no pattern is a generator function
of its own, beside its API. `barnabas.server.requests.guard` puts a declaration in front of a handler; without an
authorizer, handlers are called directly.

Checks precede everything that the handler does, so that a denied name is denied whether it exists or not. Topic ids
are no secret: an unknown one is answered with UNKNOWN_TOPIC_ID here, since the handler could see a topic that gets the
id a moment later. Denials are logged once per request (INFO), what was allowed at DEBUG; checks for filters and bit
fields are not logged. Source: `KafkaApis.scala`,
`ControllerApis.scala`, `AuthHelper.scala` (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Hashable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.server.security.acls.model import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services
    from barnabas.server.security.acls.authorizer import Permissions

log = logging.getLogger("barnabas.authorizer")

Op = AclOperation
TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN: Final = ResourceType.DELEGATION_TOKEN
USER: Final = ResourceType.USER

DENIED: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code of a denial, by type of resource."""

_PER_STEP = 32
"""Checks per step, each a unit of `barnabas.server.runtime.turns`."""
_SHOWN_LENGTH = 100

Amend = Callable[[Any], Generator[int, None, None]]
"""Changes a response in place, in steps."""


class Admitted(NamedTuple):
    """The request, perhaps without denied entries, may be handled. `amend`: changes its answer. `closes`: close the
    connection, as no answer can report the denial.
    """

    request: Any
    amend: Amend | None = None
    closes: bool = False


class Refused(NamedTuple):
    """The request is denied; `response` answers it, None: the connection is closed."""

    response: Any


Outcome = Admitted | Refused
Access = Callable[["AccessCheck"], Generator[int, None, Outcome]]
"""An API's declaration: decides on a request, in steps."""


class AccessCheck:
    """A request and its caller's permissions. It does not refer to the context, which may come to refer to it."""

    __slots__ = (
        "_client_id",
        "_denied",
        "_first",
        "_is_verbose",
        "_route",
        "permissions",
        "request",
        "services",
        "session",
        "version",
    )

    def __init__(self, services: Services, context: RequestContext, request: Any, permissions: Permissions) -> None:
        self.services = services
        self.request = request
        self.version = context.api_version
        self._route = context.route
        self.session = context.session
        self._client_id = context.client_id
        self.permissions = permissions
        self._denied = 0
        self._first: tuple[AclOperation, ResourceType, str] | None = None
        self._is_verbose = log.isEnabledFor(logging.DEBUG)

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller may do what it requests. A denial is noted for the log."""
        if self.permissions.allows(operation, resource_type, name):
            if self._is_verbose:
                log.debug("%s may %s", self._caller(), _shown(operation, resource_type, name))
            return True
        if not self._denied:
            self._first = operation, resource_type, name
        self._denied += 1
        return False

    def would_allow(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller may do this, which it has not requested: for filters and alternatives. Never logged."""
        return self.permissions.allows(operation, resource_type, name)

    def would_allow_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the caller may do this to some resource of that type, existing or not."""
        return self.permissions.allows_any(operation, resource_type)

    def bits(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """All that the caller may do to a resource (KIP-430)."""
        return self.permissions.bits(resource_type, name)

    def topic_name(self, name: str | None, topic_id: bytes) -> str | None:
        """The topic's name, given its name or id; None: the id is unknown."""
        if topic_id == ZERO_UUID:
            return name or ""
        topic = self.services.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def answer(self, code: ErrorCode, request: Any = None) -> Any:
        """The API's error response for the whole request, or for `request` in its place."""
        return self._route.error_response(self.request if request is None else request, code)

    def refuse(self, code: ErrorCode) -> Refused:
        """Refuse the whole request."""
        return Refused(self.answer(code))

    def note(self) -> None:
        """Log the denials since the last call."""
        if self._first is None:
            return
        operation, resource_type, name = self._first
        more = f" and {self._denied - 1} more" if self._denied > 1 else ""
        because = self.permissions.because(operation, resource_type, name)
        rule = "no ACL allows it" if because is None else f"ACL: {because}"
        log.info("%s may not %s%s: %s", self._caller(), _shown(operation, resource_type, name), more, rule)
        authorizer = self.services.authorizer
        if authorizer is not None:
            authorizer.denials[operation, resource_type] += self._denied
        self._denied, self._first = 0, None

    def _caller(self) -> str:
        session, client = self.session, self._client_id and self._client_id[:_SHOWN_LENGTH]
        return f"{session.principal} at {session.host}, in {self._route.name} v{self.version} of client {client!r},"


def _shown(operation: AclOperation, resource_type: ResourceType, name: str) -> str:
    """Names come from clients: no log line ends in one."""
    return f"{operation.label} {resource_type.label} {name[:_SHOWN_LENGTH]!r}"


# -- declarations ----------------------------------------------------------------------------------------------------


class Permission(NamedTuple):
    """An operation on one resource. `name(request)`: which one; None: nothing is checked."""

    operation: AclOperation
    resource_type: ResourceType
    name: Callable[[Any], str | None] = lambda request: CLUSTER_NAME


def on_cluster(operation: AclOperation) -> Permission:
    return Permission(operation, CLUSTER)


def on_group(operation: AclOperation) -> Permission:
    """On the request's `group_id`."""
    return Permission(operation, GROUP, lambda request: request.group_id)


def on_transactional_id(operation: AclOperation) -> Permission:
    """On the request's `transactional_id`."""
    return Permission(operation, TRANSACTIONAL_ID, lambda request: request.transactional_id)


def unrestricted(check: AccessCheck) -> Generator[int, None, Outcome]:
    """No permission is needed, or only the handler can check it: the API's docstring says which."""
    return Admitted(check.request)
    yield


def needs(*one_of: Permission) -> Access:
    """The whole request needs one of several permissions. Denied: it is refused, with the first one's error code."""

    def access(check: AccessCheck) -> Generator[int, None, Outcome]:
        request = check.request
        for other in one_of[1:]:
            name = other.name(request)
            if name is None or check.would_allow(other.operation, other.resource_type, name):
                return Admitted(request)
        first = one_of[0]
        name = first.name(request)
        if name is None or check.allows(first.operation, first.resource_type, name):
            return Admitted(request)
        return check.refuse(DENIED[first.resource_type])
        yield

    return access


def for_each(
    entries: str,
    answers: str,
    operation: AclOperation,
    resource_type: ResourceType = TOPIC,
    *,
    name: str = "name",
    answer_name: str | None = None,
    unless: AclOperation | None = None,
    twice_is_wrong: bool = False,
    is_wrong: Callable[[str], bool] | None = None,
    refusal: Callable[[Any, ErrorCode], Any] | None = None,
) -> Access:
    """Every entry of the list `entries` needs an operation on the resource that its field `name` names, or its field
    `topic_id`; `name` "": on the entry itself. Denied: that entry is refused, with the answer that the API has for a
    failed request of such entries. `answers`: the list of the response, whose entries are identified by `answer_name`
    (and `topic_id`). unless: an operation on the cluster that permits all. twice_is_wrong: entries named twice are left
    to the handler, which refuses them; is_wrong(name): so are entries with such a name. refusal(request, code): used in
    place of the API's answer, where that can only fail as a whole.
    """

    def access(check: AccessCheck) -> Generator[int, None, Outcome]:
        request = check.request
        given = getattr(request, entries)
        if not given or (unless is not None and check.would_allow(unless, CLUSTER)):
            return Admitted(request)
        keys = [_key(entry, name) for entry in given]
        twice = _repeated(keys) if twice_is_wrong else frozenset()
        denied: dict[Key, ErrorCode] = {}
        for number, key in enumerate(keys):
            if key not in twice and key not in denied:
                meant = check.topic_name(*key) if resource_type is TOPIC else key[0] or ""
                if meant is None:
                    denied[key] = ErrorCode.UNKNOWN_TOPIC_ID
                elif is_wrong is not None and is_wrong(meant):
                    pass
                elif not check.allows(operation, resource_type, meant):
                    denied[key] = DENIED[resource_type]
            if number % _PER_STEP == _PER_STEP - 1:
                yield _PER_STEP
        if not denied:
            return Admitted(request)
        kept, _ = split(request, entries, keys, denied)
        refusals: list[Any] = []
        for code in dict.fromkeys(denied.values()):
            _, refused = split(request, entries, keys, {key for key, why in denied.items() if why is code})
            answer = check.answer(code, refused) if refusal is None else refusal(refused, code)
            refusals += getattr(answer, answers)

        def amend(response: Any) -> Generator[int, None, None]:
            merge(response, answers, refusals, keys, answer_name or name)
            yield len(keys) // 8

        return Admitted(kept, amend)

    return access


Key = tuple[str | None, bytes]
"""A topic's name, or its id. Other resources have no id: ZERO_UUID."""


def _key(entry: Any, name: str) -> Key:
    """The key of an entry's resource."""
    if not name:
        return entry, ZERO_UUID
    return getattr(entry, name), getattr(entry, "topic_id", ZERO_UUID)


def _repeated(keys: Iterable[Hashable]) -> frozenset[Hashable]:
    seen: set[Hashable] = set()
    return frozenset(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]


def split(request: Any, entries: str, keys: list[Key], denied: Collection[Key]) -> tuple[Any, Any]:
    """The request without the denied entries of a list, and the request with only these."""
    given = getattr(request, entries)
    kept, refused = copy(request), copy(request)
    setattr(kept, entries, [entry for entry, key in zip(given, keys, strict=True) if key not in denied])
    setattr(refused, entries, [entry for entry, key in zip(given, keys, strict=True) if key in denied])
    return kept, refused


def merge(response: Any, answers: str, refusals: list[Any], keys: Iterable[Key], answer_name: str) -> None:
    """Put `refusals` between the entries of the list `answers` of a response, in the order of the request's `keys`."""
    order: dict[Any, int] = {}
    for number, (name, topic_id) in enumerate(keys):
        order.setdefault(name if topic_id == ZERO_UUID else topic_id, number)
    last = len(order)

    def place(answer: Any) -> int:
        name, topic_id = _key(answer, answer_name)
        return order.get(name, order.get(topic_id, last)) if name else order.get(topic_id, order.get(name, last))

    setattr(response, answers, sorted([*getattr(response, answers), *refusals], key=place))


def amended(amend: Callable[[AccessCheck, Any], Generator[int, None, None]]) -> Access:
    """No permission is needed; `amend(check, response)` removes from the answer what the caller may not see."""

    def access(check: AccessCheck) -> Generator[int, None, Outcome]:
        return Admitted(check.request, lambda response: amend(check, response))
        yield

    return access


def hidden(answers: str, operation: AclOperation, resource_type: ResourceType, *, name: str) -> Access:
    """The list `answers` of the response keeps only entries on which the caller may do `operation`."""

    def amend(check: AccessCheck, response: Any) -> Generator[int, None, None]:
        seen = []
        for number, answer in enumerate(getattr(response, answers)):
            if check.would_allow(operation, resource_type, getattr(answer, name)):
                seen.append(answer)
            if number % _PER_STEP == _PER_STEP - 1:
                yield _PER_STEP // 2
        setattr(response, answers, seen)

    return amended(amend)


def both(*declared: Access) -> Access:
    """One after the other: each decides on what the previous one has left of the request."""

    def access(check: AccessCheck) -> Generator[int, None, Outcome]:
        amends: list[Amend] = []
        closes = False
        for one in declared:
            outcome = yield from one(check)
            if isinstance(outcome, Refused):
                return outcome
            check.request = outcome.request
            closes |= outcome.closes
            if outcome.amend is not None:
                amends.append(outcome.amend)

        def amend(response: Any) -> Generator[int, None, None]:
            for each_one in amends:
                yield from each_one(response)

        return Admitted(check.request, amend if amends else None, closes)

    return access
