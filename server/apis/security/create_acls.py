"""CreateAcls (key 30, versions 0-3): ACLs are added, each by itself.

Behaviour: any broker serves it, and answers when the store has them; they are in force here then, on other brokers when
those have read the notification. An existing ACL counts as added. INVALID_REQUEST for an impossible ACL
(`barnabas.server.security.acls.validation`), SECURITY_DISABLED without an authorizer, UNKNOWN_SERVER_ERROR when the
store rejects it. An enumerated field of 0 (UNKNOWN) closes the connection.

Versions:

- 1: pattern types, before it LITERAL
- 2: flexible
- 3: the resource type USER
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import CreateAclsRequest, CreateAclsResponse
from barnabas.server.requests.access import Op
from barnabas.server.requests.acl_requests import NO_AUTHORIZER, binding_of, close, if_readable, is_unreadable
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

_Result = CreateAclsResponse.AclCreationResult


async def handle(svc: Services, ctx: RequestContext, req: CreateAclsRequest) -> object:
    if is_unreadable(req):
        close(ctx)
        return PENDING
    if svc.acls is None:
        return _failed(req, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    refusals = await svc.acls.create([binding_of(creation) for creation in req.creations])
    return CreateAclsResponse(
        results=[
            _Result(error_message=None)
            if refusal is None
            else _Result(error_code=refusal.code, error_message=refusal.message)
            for refusal in refusals
        ]
    )


def _failed(req: CreateAclsRequest, code: ErrorCode, message: str | None = None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_Result(error_code=code, error_message=message) for _ in req.creations])


def _on_error(req: CreateAclsRequest, code: ErrorCode, version: int) -> CreateAclsResponse:
    return _failed(req, code)


API = Api(ApiKey.CREATE_ACLS, (0, 3), handle, access=if_readable(Op.ALTER), on_error=_on_error)
