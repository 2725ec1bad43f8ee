"""DeleteAcls (key 31, versions 0-3): the ACLs that filters match are removed, and returned.

Behaviour: any broker serves it, and answers when the store has it. One result for each filter with all ACLs that it
matched, though another filter may have matched the same; no match is success. INVALID_REQUEST for a filter that names
something unknown, SECURITY_DISABLED without an authorizer, UNKNOWN_SERVER_ERROR at each ACL that the store does not
delete. An enumerated field of 0 (UNKNOWN) closes the connection.

Versions:

- 1: pattern types, before it LITERAL
- 2: flexible
- 3: the resource type USER
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import DeleteAclsRequest, DeleteAclsResponse
from barnabas.server.cluster.acls import Refusal
from barnabas.server.requests.access import Op
from barnabas.server.requests.acl_requests import NO_AUTHORIZER, close, filter_of, if_readable, is_unreadable
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.security.acls.model import AclBinding

_Result = DeleteAclsResponse.DeleteAclsFilterResult


async def handle(svc: Services, ctx: RequestContext, req: DeleteAclsRequest) -> object:
    if is_unreadable(req):
        close(ctx)
        return PENDING
    if svc.acls is None:
        return _failed(req, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results = []
    for deleted in await svc.acls.delete([filter_of(one) for one in req.filters]):
        code, message = deleted.refusal or (ErrorCode.NONE, None)
        matches = [_matching(binding, refusal) for binding, refusal in deleted.matches]
        results.append(_Result(error_code=code, error_message=message, matching_acls=matches))
    return DeleteAclsResponse(filter_results=results)


def _matching(binding: AclBinding, refusal: Refusal | None) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    pattern, entry = binding
    code, message = refusal or (ErrorCode.NONE, None)
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _failed(req: DeleteAclsRequest, code: ErrorCode, message: str | None = None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_Result(error_code=code, error_message=message) for _ in req.filters])


def _on_error(req: DeleteAclsRequest, code: ErrorCode, version: int) -> DeleteAclsResponse:
    return _failed(req, code)


API = Api(ApiKey.DELETE_ACLS, (0, 3), handle, access=if_readable(Op.ALTER), on_error=_on_error)
