"""What the three ACL APIs share: filters and ACLs of the wire as values, and numbers that stand for nothing.

A zero is in none of the protocol's lists: Apache Kafka cannot read such a request, and closes the connection before it
looks at anything else. A number that it does not know is read, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.kproto.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from barnabas.server.requests.access import Access, Asked, Outcome, Refused, needs, on_cluster
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


def filter_of(asked: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType.from_code(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.from_code(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.from_code(asked.operation),
        PermissionType.from_code(asked.permission_type),
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
    """Whether there is a zero where a number must be."""
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
    """What cannot be read is answered by nobody."""
    ctx.connection.abort()


def if_readable(operation: AclOperation) -> Access:
    """An operation on the cluster is needed for what can be read."""
    needed = needs(on_cluster(operation))

    def access(asked: Asked) -> Generator[int, None, Outcome]:
        if is_unreadable(asked.request):
            return Refused(None)
        return (yield from needed(asked))

    return access
