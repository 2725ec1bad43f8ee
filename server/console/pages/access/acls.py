"""`/acls`: who may do what; new ones."""

from __future__ import annotations

from typing import Any, Final

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.acls import create_acl, describe_acls
from barnabas.server.client.failures import Refused
from barnabas.server.console.pages.common import cut
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import Done, View, refused, status_of
from barnabas.server.console.web.visit import Visit
from barnabas.server.security.acls.model import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

_FOR_FILTERS: Final = ("UNKNOWN", "ANY", "MATCH")
RESOURCES: Final = tuple(each.label for each in ResourceType if each.name not in _FOR_FILTERS)
PATTERNS: Final = tuple(each.label for each in PatternType if each.name not in _FOR_FILTERS)
OPERATIONS: Final = (
    *(each.label for each in AclOperation if each.name not in _FOR_FILTERS and each is not AclOperation.ALL),
    AclOperation.ALL.label,
)
"""The first is what a form says that was not looked at."""
PERMISSIONS: Final = (PermissionType.ALLOW.label, PermissionType.DENY.label)


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    text = visit.query.text("q").lower()
    is_on, every = True, list[AclBinding]()
    try:
        every = await describe_acls(visit.client)
    except Refused as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        is_on = False
    rows = [row for row in map(row_of, every) if text in " ".join(row.values()).lower()]
    shown, pages = cut(rows, visit.query, 100)
    names = ("principal", "host", "resource", "name", "pattern", "operation", "permission")
    data: dict[str, Any] = {
        "q": visit.query.text("q"),
        "is_on": is_on,
        "acls": shown,
        "all": len(every),
        "fields": {name: visit.form.raw(name) for name in names},
        "resources": list(RESOURCES),
        "patterns": list(PATTERNS),
        "operations": list(OPERATIONS),
        "permissions": list(PERMISSIONS),
        "problems": problems or [],
        **pages,
    }
    return View("acls", "ACLs", data, status)


def row_of(acl: AclBinding) -> dict[str, str]:
    return {
        "permission": acl.entry.permission_type.label,
        "principal": acl.entry.principal,
        "host": acl.entry.host,
        "operation": acl.entry.operation.label,
        "resource": acl.pattern.resource_type.label,
        "name": acl.pattern.name,
        "pattern": acl.pattern.pattern_type.label,
    }


async def change(visit: Visit) -> Done | View:
    try:
        acl = acl_of(visit.form)
    except Unclear as error:
        return await _view(visit, [str(error)], 422)
    failed = await create_acl(visit.client, acl)
    if failed is not None:
        if status_of(failed.code) == 422:
            return await _view(visit, [str(failed)], 422)
        raise refused("ACL", failed)
    return Done(f"created the ACL: {acl.entry}, {acl.pattern}", "acl-created", "/acls", row_of(acl))


def acl_of(form: Fields) -> AclBinding:
    """By the names of `row_of`. Raises Unclear."""
    principal = form.text("principal")
    kind, colon, who = principal.partition(":")
    if not colon or not kind or not who:
        raise Unclear("principal", f"principal: User:name is expected, not {principal[:60]!r}")
    resource = ResourceType.from_text(form.choice("resource", RESOURCES))
    name = form.text("name") or (CLUSTER_NAME if resource is ResourceType.CLUSTER else "")
    if not name:
        raise Unclear("name", "name: of the resource; * for all of this kind")
    return AclBinding(
        ResourcePattern(resource, name, PatternType.from_text(form.choice("pattern", ("Literal", "Prefixed")))),
        AccessControlEntry(
            principal,
            form.text("host") or "*",
            AclOperation.from_text(form.choice("operation", OPERATIONS)),
            PermissionType.from_text(form.choice("permission", PERMISSIONS)),
        ),
    )
