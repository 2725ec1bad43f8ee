"""The authorizer: super users, entries, and the default for resources without entries.

Verdicts are kept until an entry changes, in one dictionary for each principal and host, so that what is asked again
and again costs a look-up. Names that are longer than any topic's are decided each time, and all verdicts are forgotten
when there are too many: a peer makes up as many names as he likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from barnabas.server.security.acls.index import AclIndex
from barnabas.server.security.acls.model import (
    WILDCARD,
    AccessControlEntry,
    AclOperation,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.acls.operations import ALL_BITS
from barnabas.server.security.acls.rules import allowed_bits, decide_any, deciding, textual_address
from barnabas.server.security.principals import Principal
from barnabas.server.security.session import Session

KEPT_NAME_LENGTH: Final = 249
KEPT_VERDICTS: Final = 200_000

_ALL = -1
_BITS: Final = tuple(1 << operation for operation in AclOperation)


class Permissions:
    """What one principal at one host may do; good until `Authorizer.version` changes."""

    __slots__ = ("_any", "_authorizer", "_host", "_is_super", "_known", "_principal", "version")

    def __init__(self, authorizer: Authorizer, principal: str, host: str, *, is_super: bool, version: int) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._is_super = is_super
        # By type and name: the operations that are allowed, a bit each.
        self._known: tuple[dict[str, int], ...] = tuple({} for _ in ResourceType)
        self._any: dict[tuple[AclOperation, ResourceType], bool] = {}
        self.version = version

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether he may do this to the resource of that name, be there one or not."""
        bits = self._known[resource_type].get(name)
        if bits is None:
            bits = self._decide(resource_type, name)
        return bits & _BITS[operation] != 0

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """All that he may do to a resource, of what can be done to it, as a bit field (KIP-430)."""
        bits = self._known[resource_type].get(name)
        if bits is None:
            bits = self._decide(resource_type, name)
        return bits & ALL_BITS[resource_type]

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there could be a resource of the type that he may do this to."""
        if self._is_super:
            return True
        verdict = self._any.get((operation, resource_type))
        if verdict is None:
            verdict = self._authorizer.decide_any(self._principal, self._host, operation, resource_type)
            self._any[operation, resource_type] = verdict
        return verdict

    def because(self, operation: AclOperation, resource_type: ResourceType, name: str) -> AccessControlEntry | None:
        """The entry that a verdict rests on, for the log; None: he is a super user, or no entry speaks of it."""
        if self._is_super:
            return None
        rules = self._authorizer.index.applicable(resource_type, name)
        return deciding(rules, self._principal, self._host, operation)

    def _decide(self, resource_type: ResourceType, name: str) -> int:
        if self._is_super:
            return _ALL
        bits = self._authorizer.decide(self._principal, self._host, resource_type, name)
        if len(name) <= KEPT_NAME_LENGTH:
            self._known[resource_type][name] = bits
            self._authorizer.kept()
        return bits


class Authorizer:
    """`version` changes with every change of entries. `index`: the entries; change them by `put` alone.

    super_users: principals who may do everything. allow_everyone: what holds for resources that no entry speaks of
    (`allow.everyone.if.no.acl.found`). denials: how often what was denied, by the first operation and type of resource
    of a request.
    """

    def __init__(self, super_users: Collection[Principal] = (), *, allow_everyone: bool = False) -> None:
        self.index = AclIndex()
        self.version = 1
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._permissions: dict[tuple[Principal, str], Permissions] = {}
        self._kept = 0
        self.denials: Counter[tuple[AclOperation, ResourceType]] = Counter()

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """These are now the entries of `pattern`. Whether that is new."""
        if not self.index.put(pattern, entries):
            return False
        self.version += 1
        self._forget()
        return True

    def permissions(self, session: Session) -> Permissions:
        """What a session may do, to be asked more than once."""
        who = (session.principal, session.host)
        found = self._permissions.get(who)
        if found is None:
            found = Permissions(
                self,
                str(session.principal),
                textual_address(session.host),
                is_super=self.is_super(session.principal),
                version=self.version,
            )
            self._permissions[who] = found
            self.kept()
        return found

    def is_super(self, principal: Principal) -> bool:
        """Whether nothing needs to be asked about a principal."""
        return principal in self._super_users

    def allows(self, session: Session, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the session may do this to the resource of that name, be there one or not."""
        return self.permissions(session).allows(operation, resource_type, name)

    def allows_any(self, session: Session, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there could be a resource of the type that the session may do this to."""
        return self.permissions(session).allows_any(operation, resource_type)

    def decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations that a principal, no super user, may do to a resource, a bit each. principal: as text; host:
        as `textual_address` writes it.
        """
        bits = allowed_bits(self.index.applicable(resource_type, name), principal, host)
        if bits is None:
            return _ALL if self._allow_everyone else 0
        return bits

    def decide_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether he may do an operation to any resource of a type."""
        if self._allow_everyone and not self.index.entries(ResourcePattern(resource_type, WILDCARD)):
            return True  # there are names that no entry speaks of
        return decide_any(self.index.of_type(resource_type), principal, host, operation)

    def kept(self) -> None:
        """One more verdict is cached (called by `Permissions`)."""
        self._kept += 1
        if self._kept > KEPT_VERDICTS:
            self.version += 1  # holders of Permissions request new ones
            self._forget()

    def _forget(self) -> None:
        self._permissions = {}
        self._kept = 0
