"""The access lists in force on this broker: read from the store before it serves, kept up to date, and changed.

Any broker changes them: it writes the list and a notice in one commit, and applies the list itself; others read the
list again when they see the notice. A lost session may have missed notices, so everything is read again. A resource
whose list cannot be read is closed to all but super users. Source: `AclAuthorizer.scala` (3.9); as in Apache Kafka 4.3,
each filter of DeleteAcls reports all that it matched, even if another one reports the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import trio

from barnabas.kproto import ErrorCode
from barnabas.replication import BadNode, Store, StoreError
from barnabas.replication.tree import acl_nodes
from barnabas.replication.tree.acl_nodes import AclPlace, StoredAcl, TooManyConflicts
from barnabas.server.cluster.change_notices import ChangeNotices, follow
from barnabas.server.security.acls.authorizer import Authorizer
from barnabas.server.security.acls.filters import AclFilter
from barnabas.server.security.acls.model import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.acls.validation import problem

log = logging.getLogger("barnabas.authorizer")

_CLOSED = AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, PermissionType.DENY)


class Refusal(NamedTuple):
    """Why a change was refused."""

    code: ErrorCode
    message: str


class Deleted(NamedTuple):
    """The result of one filter: the ACLs that it matched, each with the reason if it was not removed; or why the
    filter was refused.
    """

    matches: tuple[tuple[AclBinding, Refusal | None], ...]
    refusal: Refusal | None = None


class StoredAcls:
    """See the module. wall_ms(): milliseconds since the epoch."""

    def __init__(self, store: Store, authorizer: Authorizer, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._authorizer = authorizer
        self._notices = tuple(
            ChangeNotices(store, place, acl_nodes.decode_change, wall_ms, self._reload, self._unreadable)
            for place in (acl_nodes.LITERAL_CHANGES, acl_nodes.PREFIXED_CHANGES)
        )
        self._lock = trio.Lock()  # a value read must not be applied after one written later

    async def load(self) -> None:
        """Read and apply all lists of the store. Raises StoreError."""
        await acl_nodes.make_acl_roots(self._store)
        for notices in self._notices:
            await notices.skip()
        await self._read_all()
        log.info(
            "loaded %d ACLs of %d resource patterns",
            len(self._authorizer.index),
            len(self._authorizer.index.patterns()),
        )

    async def run(self) -> None:
        """Follow the store until cancelled."""
        await follow(self._store, self._notices, self._read_all, "the ACLs")

    async def create(self, bindings: Sequence[AclBinding]) -> list[Refusal | None]:
        """Add ACLs; one result each. What is there already counts as added."""
        results: list[Refusal | None] = []
        wanted: dict[ResourcePattern, list[int]] = {}
        for number, binding in enumerate(bindings):
            why = problem(binding)
            results.append(None if why is None else Refusal(ErrorCode.INVALID_REQUEST, why))
            if why is None:
                wanted.setdefault(binding.pattern, []).append(number)
        for pattern, numbers in wanted.items():
            new = [_stored(bindings[number].entry) for number in numbers]
            refusal = await self._update(pattern, lambda before, new=new: [*dict.fromkeys((*before, *new))])  # type: ignore[misc]
            for number in numbers:
                results[number] = refusal
        return results

    async def delete(self, filters: Sequence[AclFilter]) -> list[Deleted]:
        """Remove the ACLs that match; one result for each filter."""
        matched: list[dict[AclBinding, Refusal | None]] = [{} for _ in filters]
        known = [numbered for numbered in enumerate(filters) if not numbered[1].is_unknown]
        places = dict.fromkeys(self._authorizer.index.patterns())
        for _, one in known:  # other brokers may have just added some
            places.update(dict.fromkeys(one.exact_patterns()))
        for pattern in places:
            about = [(number, one) for number, one in known if one.matches_pattern(pattern)]
            if about:
                await self._delete_from(pattern, about, matched)
        return [
            Deleted((), Refusal(ErrorCode.INVALID_REQUEST, "The filter names something that has no number here."))
            if one.is_unknown
            else Deleted(tuple(found.items()))
            for one, found in zip(filters, matched, strict=True)
        ]

    async def _delete_from(
        self,
        pattern: ResourcePattern,
        about: Sequence[tuple[int, AclFilter]],
        matched: Sequence[dict[AclBinding, Refusal | None]],
    ) -> None:
        doomed: list[tuple[int, AclBinding]] = []

        def edit(before: Sequence[StoredAcl]) -> list[StoredAcl]:
            doomed.clear()
            left = []
            for stored in before:
                entry = _entry(stored)
                numbers = [number for number, one in about if one.matches_entry(entry)]
                doomed.extend((number, AclBinding(pattern, entry)) for number in numbers)
                if not numbers:
                    left.append(stored)
            return left

        refusal = await self._update(pattern, edit)
        for number, binding in doomed:
            matched[number][binding] = refusal

    async def _update(
        self, pattern: ResourcePattern, edit: Callable[[Sequence[StoredAcl]], Sequence[StoredAcl]]
    ) -> Refusal | None:
        async with self._lock:
            try:
                acls = await acl_nodes.update_acls(self._store, _place(pattern), edit)
            except (StoreError, BadNode, TooManyConflicts) as error:
                log.error("cannot change the ACLs of %s: %s", pattern, error)
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata store did not take the change.")
            self._put(pattern, acls)
        return None

    async def _read_all(self) -> None:
        async with self._lock:
            found = await acl_nodes.read_all_acls(self._store, self._unreadable)
            present = {_pattern(place): acls for place, acls in found.items()}
            for pattern in self._authorizer.index.patterns():
                if pattern not in present:
                    self._put(pattern, ())
            for pattern, acls in present.items():
                self._put(pattern, acls)

    async def _reload(self, place: AclPlace) -> None:
        async with self._lock:
            acls: list[StoredAcl] | None = None
            try:
                acls = await acl_nodes.read_acls(self._store, place)
            except BadNode as error:
                self._unreadable(error)
            self._put(_pattern(place), acls)

    def _put(self, pattern: ResourcePattern, acls: Iterable[StoredAcl] | None) -> None:
        """None: the list cannot be read, so only super users have access."""
        if self._authorizer.put(pattern, [_CLOSED] if acls is None else map(_entry, acls)):
            log.debug("ACLs of %s: %s", pattern, ", ".join(map(str, self._authorizer.index.entries(pattern))) or "none")

    @staticmethod
    def _unreadable(error: BadNode) -> None:
        log.error("cannot read an access list, closing its resource to all but super users: %s", error)


def _place(pattern: ResourcePattern) -> AclPlace:
    return AclPlace(pattern.resource_type.label, pattern.name, pattern.pattern_type is PatternType.PREFIXED)


def _pattern(place: AclPlace) -> ResourcePattern:
    kind = ResourceType.from_text(place.resource_type)
    return ResourcePattern(kind, place.name, PatternType.PREFIXED if place.is_prefix else PatternType.LITERAL)


def _stored(entry: AccessControlEntry) -> StoredAcl:
    return StoredAcl(entry.principal, entry.permission_type.label, entry.operation.label, entry.host)


def _entry(acl: StoredAcl) -> AccessControlEntry:
    operation, permission = AclOperation.from_text(acl.operation), PermissionType.from_text(acl.permission_type)
    return AccessControlEntry(acl.principal, acl.host, operation, permission)
