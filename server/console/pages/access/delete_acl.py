"""`/delete-acl?principal=…`: what an ACL allows or denies and what counts without it, then it is deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.acls import delete_acl, describe_acls
from barnabas.server.client.failures import Refused
from barnabas.server.client.texts.amounts import counted
from barnabas.server.console.pages.access.acls import acl_of, row_of
from barnabas.server.console.web.view import Done, Refusal, View, refused
from barnabas.server.console.web.visit import Visit
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
)

SHOWN = 20


async def show(visit: Visit) -> View:
    acl = acl_of(visit.query) if visit.query.text("principal") else None
    try:
        every = await describe_acls(visit.client)
    except Refused as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        every = []
    found = acl is not None and acl in every
    others = [each for each in every if each != acl]
    left = [each for each in others if acl is not None and _is_related(each, acl)]
    data: dict[str, Any] = {
        "acl": None if acl is None else row_of(acl),
        "found": found,
        "effects": list(effects(acl, others)) if acl is not None and found else [],
        "left": [row_of(each) for each in left[:SHOWN]],
        "left_count": len(left),
    }
    return View("delete_acl", "Delete an ACL", data)


async def change(visit: Visit) -> Done:
    acl = acl_of(visit.form)
    failed = await delete_acl(visit.client, acl)
    if failed is not None:
        raise Refusal(404, str(failed)) if failed.code == ErrorCode.RESOURCE_NOT_FOUND else refused("ACL", failed)
    return Done(f"deleted the ACL: {acl.entry}, {acl.pattern}", "acl-deleted", "/acls", row_of(acl))


def effects(acl: AclBinding, others: Iterable[AclBinding]) -> Iterator[str]:
    """What follows, by the rules that brokers decide by: a Deny wins over every Allow; what has no ACL at all is for
    super users, or for everybody where allow.everyone.if.no.acl.found is set.
    """
    pattern, entry = acl
    what = f"{pattern.resource_type.label} {pattern.name}"
    about = [each for each in others if _covers(each.pattern, pattern)]
    same = [each.entry for each in about if _is_as_wide(each.entry, entry)]
    allowing = [each for each in same if each.permission_type is PermissionType.ALLOW]
    denying = [each for each in same if each.permission_type is PermissionType.DENY]
    if entry.permission_type is PermissionType.DENY:
        if denying:
            yield f"It stays denied, by {counted(len(denying), 'other ACL')}."
        elif allowing:
            yield "What it denies is allowed afterwards, by an ACL that remains."
        else:
            yield "What it denies stays forbidden unless another ACL allows a part of it."
    elif denying:
        yield "It allows nothing now: an ACL that denies as much wins over it."
    elif allowing:
        yield f"It stays allowed, by {counted(len(allowing), 'other ACL')}."
    else:
        yield f"{entry.principal} can no longer do this unless he is a super user, or another ACL allows a part of it."
    if not about:
        yield (
            f"It is the last ACL for {what}. Without one it is for super users alone, or for everybody where "
            "allow.everyone.if.no.acl.found is set."
        )


def _is_related(each: AclBinding, acl: AclBinding) -> bool:
    """Of the same principal or of everybody, and about the same resource."""
    return each.entry.principal in (acl.entry.principal, "User:*") and _covers(each.pattern, acl.pattern)


def _covers(wide: ResourcePattern, narrow: ResourcePattern) -> bool:
    """Whether all that `narrow` is about is in `wide`."""
    if wide.resource_type is not narrow.resource_type:
        return False
    if wide == narrow:
        return True
    if wide.pattern_type is PatternType.PREFIXED:
        return narrow.name.startswith(wide.name) and narrow.name != "*"
    return wide.name == "*"


def _is_as_wide(wide: AccessControlEntry, narrow: AccessControlEntry) -> bool:
    return (
        wide.principal in (narrow.principal, "User:*")
        and wide.host in (narrow.host, "*")
        and wide.operation in (narrow.operation, AclOperation.ALL)
    )
