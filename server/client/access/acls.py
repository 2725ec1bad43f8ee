"""ACLs: DescribeAcls 1-3, CreateAcls 1-3, DeleteAcls 1-3, of any broker."""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from barnabas.server.client.client import Client
from barnabas.server.client.failures import Failed
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)


async def describe_acls(client: Client) -> list[AclBinding]:
    """All ACLs, in order. Raises ClientError; Refused with SECURITY_DISABLED where no authorizer decides."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    answer = await client.ask_patiently(ApiKey.DESCRIBE_ACLS, lambda version: request, lambda answer: answer.error_code)
    return sorted(
        AclBinding(
            ResourcePattern(
                ResourceType.from_code(row.resource_type), row.resource_name, PatternType.from_code(row.pattern_type)
            ),
            AccessControlEntry(
                each.principal,
                each.host,
                AclOperation.from_code(each.operation),
                PermissionType.from_code(each.permission_type),
            ),
        )
        for row in answer.resources
        for each in row.acls
    )


async def create_acl(client: Client, acl: AclBinding) -> Failed | None:
    """One that is there already is no failure. Raises ClientError."""
    pattern, entry = acl
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        ]
    )
    answer = await client.ask_any(ApiKey.CREATE_ACLS, lambda version: request)
    row = answer.results[0]
    return Failed.of(row.error_code, row.error_message) if row.error_code else None


async def delete_acl(client: Client, acl: AclBinding) -> Failed | None:
    """Failed with RESOURCE_NOT_FOUND if there is no such ACL. Raises ClientError."""
    pattern, entry = acl
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=pattern.resource_type,
                resource_name_filter=pattern.name,
                pattern_type_filter=pattern.pattern_type,
                principal_filter=entry.principal,
                host_filter=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        ]
    )
    answer = await client.ask_any(ApiKey.DELETE_ACLS, lambda version: request)
    row = answer.filter_results[0]
    if row.error_code:
        return Failed.of(row.error_code, row.error_message)
    for each in row.matching_acls:
        if each.error_code:
            return Failed.of(each.error_code, each.error_message)
    return None if row.matching_acls else Failed(ErrorCode.RESOURCE_NOT_FOUND, "there is no such ACL")
