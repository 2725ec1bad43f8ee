"""What the three ACL APIs share: filters and ACLs of the wire as values, and codes without a meaning.

Zero is no code of any enum: Apache Kafka cannot read such a request, and closes the connection first of all. An unknown
code is read, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.kproto.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from barnabas.server.requests.access import Access, AccessCheck, Outcome, Refused, needs, on_cluster
from barnabas.server.security.acls.filters import AclFilter
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."


def filter_of(filters: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType.from_code(filters.resource_type_filter),
        filters.resource_name_filter,
        PatternType.from_code(filters.pattern_type_filter),
        filters.principal_filter,
        filters.host_filter,
        AclOperation.from_code(filters.operation),
        PermissionType.from_code(filters.permission_type),
    )


def binding_of(creation: CreateAclsRequest.AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType.from_code(creation.resource_type),
            creation.resource_name,
            PatternType.from_code(creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            AclOperation.from_code(creation.operation),
            PermissionType.from_code(creation.permission_type),
        ),
    )


def is_unreadable(request: Any) -> bool:
    """Whether a code is zero."""
    if isinstance(request, CreateAclsRequest):
        return any(
            0 in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
            for each in request.creations
        )
    filters: Iterable[Any] = (request,) if isinstance(request, DescribeAclsRequest) else request.filters
    return any(
        0 in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        for each in filters
    )


def close(ctx: RequestContext) -> None:
    """Close the connection: the request cannot be read."""
    ctx.connection.abort()


def if_readable(operation: AclOperation) -> Access:
    """An operation on the cluster is needed, unless the request cannot be read."""
    needed = needs(on_cluster(operation))

    def access(check: AccessCheck) -> Generator[int, None, Outcome]:
        if is_unreadable(check.request):
            return Refused(None)
        return (yield from needed(check))

    return access
