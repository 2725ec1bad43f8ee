"""DescribeUserScramCredentials (key 50, version 0): which users can log in by SCRAM (KIP-554).

Behaviour: of each user the mechanisms that he has credentials for, with their iterations, no more. Without names, null
or none, all users that have one. A name that stands twice gives DUPLICATE_RESOURCE, once; one without credentials
RESOURCE_NOT_FOUND. Any broker answers.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, shortened
from barnabas.kproto.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(
    svc: Services, ctx: RequestContext, req: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    known = svc.users.scram
    named: dict[str, int] = {}
    for user in req.users or ():
        named[user.name] = named.get(user.name, 0) + 1
        yield 1
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name in named or known.names:
        yield 1
        credentials = known.credentials(name)
        result = _Result(user=name, error_message=None)
        if named.get(name, 1) > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = shortened(f"User {name} stands in the request more than once.")
        elif not credentials:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = shortened(f"User {name} has no SCRAM credentials.")
        else:
            result.credential_infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=mechanism.number, iterations=credential.iterations
                )
                for mechanism, credential in credentials.items()
            ]
        response.results.append(result)
    return response


def _refusal(
    req: DescribeUserScramCredentialsRequest, code: ErrorCode, version: int
) -> DescribeUserScramCredentialsResponse:
    """Names are not given back, as Apache Kafka does not."""
    results = [_Result(error_code=code, error_message=None) for _ in req.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)


API = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    (0, 0),
    handle,
    access=needs(on_cluster(Op.DESCRIBE)),
    on_error=_refusal,
)
