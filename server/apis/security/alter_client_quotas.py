"""AlterClientQuotas (key 49, versions 0-1): set limits of users, client ids and addresses, or remove them (KIP-546).

Behaviour: each entity succeeds or fails by itself and as a whole, with one result. A null name means all entities
without limits of their own. A limit to be removed need not exist. When the answer is sent the change is in force here;
other brokers are notified immediately. Any broker serves it.

INVALID_REQUEST is the answer to

- no entity, one without a name, an unknown type, `ip` beside others, an unknown host;
- an unknown key, a duplicate key, a value of 0 or less, too large, or with a fraction where none is allowed;
- an entity that the request names more than once: none of its changes is made.

The user `<default>` has no limits of his own: his node's name is taken.

Versions:

- 1: flexible

Sources: `ClientQuotaControlManager.java` (4.3), `ZkAdminManager.scala` (3.9); they do one entry of an entity that
stands there twice (the first, the last), and take limits that are no finite number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError, shortened
from barnabas.kproto.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.replication import DEFAULT_ENTITY
from barnabas.server.network.addresses import addresses_of
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.security.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, QuotaKey, text_of
from barnabas.server.security.quotas.limits import DEFAULT

_Entry = AlterClientQuotasRequest.EntryData
_Named = Mapping[str, str | None]
"""An entity as it stands in the request: names, null for the default, by type."""


async def handle(svc: Services, ctx: RequestContext, req: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    named = [{part.entity_type: part.entity_name for part in entry.entity} for entry in req.entries]
    times = Counter(frozenset(one.items()) for one in named)
    response = AlterClientQuotasResponse()
    for one, entry in zip(named, req.entries, strict=True):
        await trio.lowlevel.checkpoint()
        key = frozenset(one.items())
        if key not in times:
            continue  # answered
        result = _result(one)
        try:
            if times.pop(key) > 1:
                raise _invalid("The entity stands in the request more than once.")
            entity = await _entity(one)
            changes = _changes(entity, entry)
            if not req.validate_only:
                await svc.quotas.alter(entity, changes)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, shortened(error.message or "") or None
        response.entries.append(result)
    return response


async def _entity(named: _Named) -> QuotaEntity:
    if not named:
        raise _invalid("The entity is empty.")
    for kind, name in named.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid("There are the types user, client-id and ip alone.")
        if name is not None and name in (DEFAULT, DEFAULT_ENTITY):
            raise _invalid(f"{name or 'Nothing'} is no name of a {kind}; the default's is null.")
    if IP in named:
        if len(named) > 1:
            raise _invalid("An entity of type ip has no other types.")
        host = named[IP]
        if host is not None:
            try:
                await addresses_of(host)
            except OSError:
                raise _invalid(f"{host} is no address, and no host that can be found.") from None
    user, client_id, ip = ((named[kind] or DEFAULT) if kind in named else None for kind in (USER, CLIENT_ID, IP))
    return QuotaEntity(user, client_id, ip)


def _changes(entity: QuotaEntity, entry: _Entry) -> dict[QuotaKey, str | None]:
    """The new limits as they are stored, None for one that is removed."""
    seen: set[str] = set()
    changes: dict[QuotaKey, str | None] = {}
    for op in entry.ops:
        if op.key in seen:
            raise _invalid(f"{op.key} stands there more than once.")
        seen.add(op.key)
        key = next((known for known in entity.keys if known == op.key), None)
        if op.remove:
            if key is not None:
                changes[key] = None
            continue
        if key is None:
            raise _invalid(f"{op.key} cannot be set; it may be {', '.join(entity.keys)}.")
        try:
            changes[key] = text_of(key, op.value)
        except ValueError as error:
            raise _invalid(f"{error}.") from None
    return changes


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _result(named: _Named, code: ErrorCode = ErrorCode.NONE) -> AlterClientQuotasResponse.EntryData:
    return AlterClientQuotasResponse.EntryData(
        error_code=code,
        error_message=None,
        entity=[
            AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()
        ],
    )


def _refusal(req: AlterClientQuotasRequest, code: ErrorCode, version: int) -> AlterClientQuotasResponse:
    every = [{part.entity_type: part.entity_name for part in entry.entity} for entry in req.entries]
    distinct = {frozenset(named.items()): named for named in every}
    return AlterClientQuotasResponse(entries=[_result(named, code) for named in distinct.values()])


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), handle, access=needs(on_cluster(Op.ALTER_CONFIGS)), on_error=_refusal)
