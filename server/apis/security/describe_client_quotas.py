"""DescribeClientQuotas (key 48, versions 0-1): the limits of users, client ids and addresses (KIP-546).

Behaviour: a filter names types of entities – `user`, `client-id`, or `ip` alone – each with the name that is sought
(0), for the default (1), or for whatever there is (2). An entity matches that has all of them; with `strict`, and
nothing else. A filter without components matches everything, with `strict` nothing. Any broker answers, from what it
has in force.

INVALID_REQUEST is the answer to an empty type, one that stands twice, `ip` beside others, another way to match, a name
too many or too few; UNSUPPORTED_VERSION to a type that there is not.

Versions:

- 1: flexible

Sources: `ClientQuotasImage.java` (4.3), `ZkAdminManager.scala` (3.9).
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps
from barnabas.server.security.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity
from barnabas.server.security.quotas.limits import DEFAULT

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_PER_STEP = 8

_Entry = DescribeClientQuotasResponse.EntryData


def handle(svc: Services, ctx: RequestContext, req: DescribeClientQuotasRequest) -> Steps[DescribeClientQuotasResponse]:
    try:
        wanted = _wanted(req)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message or None, entries=None)
    entries = []
    for number, (entity, limits) in enumerate(svc.quotas.entities()):
        if number % _PER_STEP == 0:
            yield 1
        parts = entity.parts
        if req.strict and len(parts) != len(wanted):
            continue
        if all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items()):
            yield 1
            entries.append(_entry(entity, {key.value: value for key, value in limits.items()}))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _wanted(req: DescribeClientQuotasRequest) -> dict[str, str | None]:
    """The names sought, by type; None for any."""
    wanted: dict[str, str | None] = {}
    for component in req.components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The type of an entity is empty.")
        if kind in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The type {kind} stands in the filter more than once.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "There are the types user, client-id and ip alone.")
        wanted[kind] = _name(component)
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A filter for ip has no other components.")
    return wanted


def _name(component: DescribeClientQuotasRequest.ComponentData) -> str | None:
    how, name = component.match_type, component.match
    if how not in (_EXACT, _DEFAULT, _ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no way {how} to match an entity.")
    if how == _EXACT:
        if name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The name that is sought is missing.")
        return name or _NO_NAME
    if name is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name stands where none is sought.")
    return DEFAULT if how == _DEFAULT else None


_NO_NAME = "\0"
"""Sought for an empty name, which no entity has: to us it would be the default."""


def _entry(entity: QuotaEntity, limits: dict[str, float]) -> _Entry:
    return _Entry(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in entity.parts.items()
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in limits.items()],
    )


def _refusal(req: DescribeClientQuotasRequest, code: ErrorCode, version: int) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


API = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), handle, access=needs(on_cluster(Op.DESCRIBE_CONFIGS)), on_error=_refusal
)
