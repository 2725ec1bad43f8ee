"""DescribeAcls (key 29, versions 0-3): the ACLs that a filter matches, by resource.

Behaviour: any broker answers, from the ACLs it has in force. Without an authorizer SECURITY_DISABLED. A filter that
names something unknown matches nothing; an enumerated field of 0 (UNKNOWN) closes the connection.

Versions:

- 1: pattern types, before it LITERAL
- 2: flexible
- 3: the resource type USER
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import DescribeAclsRequest, DescribeAclsResponse
from barnabas.server.requests.access import Op
from barnabas.server.requests.acl_requests import NO_AUTHORIZER, close, filter_of, if_readable, is_unreadable
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_STEP = 64


def handle(svc: Services, ctx: RequestContext, req: DescribeAclsRequest) -> Steps[object]:
    if is_unreadable(req):
        close(ctx)
        return PENDING
    if svc.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    sought = filter_of(req)
    index = svc.authorizer.index
    resources = []
    for number, pattern in enumerate(sorted(index.patterns())):
        if number % _STEP == 0:
            yield _STEP // 8
        if not sought.matches_pattern(pattern):
            continue
        entries = [entry for entry in sorted(index.entries(pattern)) if sought.matches_entry(entry)]
        yield 1 + len(entries)
        if entries:
            resources.append(
                DescribeAclsResponse.DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        DescribeAclsResponse.AclDescription(
                            principal=entry.principal,
                            host=entry.host,
                            operation=entry.operation,
                            permission_type=entry.permission_type,
                        )
                        for entry in entries
                    ],
                )
            )
    return DescribeAclsResponse(error_message=None, resources=resources)


API = Api(ApiKey.DESCRIBE_ACLS, (0, 3), handle, access=if_readable(Op.DESCRIBE))
