"""FindCoordinator (key 10, versions 0-6): the broker that coordinates a group, a transactional id, or what is stored of
a share partition.

Behaviour: the coordinator of a group is the leader of the partition of `__consumer_offsets` that its id hashes to, that
of a transactional id the leader of its partition of `__transaction_state`; answered with its address on the listener of
the request. The first request creates the topic (settings `offsets.topic.*`, `transaction.state.log.*`). Until the
partition has a leader the answer is COORDINATOR_NOT_AVAILABLE, which clients retry; it is held for up to `WAIT_S`,
unlike in Apache Kafka, where such moments are rarer: librdkafka 2.16 hangs for good when three attempts in a row are
rejected while it adds offsets to a transaction.

Versions:

- 1: adds the key type and an error message
- 3: flexible
- 4: asks for several keys at once
- 5: no change here
- 6: share partitions may be asked for (key type 2, keys `group:topic id:partition`)

A key that is requested twice is answered once. While `share.version` is 0, share partitions are answered with
INVALID_REQUEST, as by an Apache Kafka without share groups.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.server.coordinators.groups import GroupCoordinator
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.coordinators.transactions import TransactionCoordinator
from barnabas.server.requests.access import (
    AccessCheck,
    Op,
    Outcome,
    Permission,
    for_each,
    needs,
    on_cluster,
    unrestricted,
)
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps
from barnabas.server.security.acls.model import ResourceType

_Coordinator = FindCoordinatorResponse.Coordinator

GROUP = 0
TRANSACTION = 1
WAIT_S = 2.0
LOOK_AGAIN_S = 0.02

SHARE = 2
_SHARE_FROM = 6


async def handle(svc: Services, ctx: RequestContext, req: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = dict.fromkeys(req.coordinator_keys) if ctx.api_version >= 4 else [req.key]
    begun = trio.current_time()
    coordinators: dict[str, _Coordinator] = {}
    open_ones: Iterable[str] = keys
    while True:
        open_ones = await svc.turns.run(_look(svc, ctx, req.key_type, open_ones, coordinators))
        if not open_ones or trio.current_time() - begun > WAIT_S or ctx.closed:
            break
        await trio.sleep(LOOK_AGAIN_S)
    if ctx.api_version >= 4:
        return FindCoordinatorResponse(coordinators=[coordinators[key] for key in keys])
    found = coordinators[req.key]
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _look(
    svc: Services, ctx: RequestContext, key_type: int, keys: Iterable[str], coordinators: dict[str, _Coordinator]
) -> Steps[list[str]]:
    """Find the coordinators of `keys`. Returns the keys that have none yet."""
    missing = []
    for key in keys:
        coordinators[key] = found = _find(svc, ctx, key_type, key)
        if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            missing.append(key)
        yield 1
    return missing


def _coordinators(
    svc: Services, version: int, key_type: int, key: str
) -> GroupCoordinator | TransactionCoordinator | ShareStateCoordinator:
    """Raises KafkaError INVALID_REQUEST."""
    if key_type == GROUP:
        return svc.groups
    if key_type == TRANSACTION:
        return svc.transactions
    if key_type != SHARE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown type {key_type}.")
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "This broker does not serve share groups.")
    if version < _SHARE_FROM:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Share partitions are asked for from version {_SHARE_FROM} on.")
    from barnabas.coordinator.share import parse_coordinator_key

    parse_coordinator_key(key)
    return svc.share_states


def _find(svc: Services, ctx: RequestContext, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    try:
        coordinators = _coordinators(svc, ctx.api_version, key_type, key)
    except KafkaError as error:
        return _failed(key, error.code, error.message or "")
    place = coordinators.place(key)
    if place is None:
        if not svc.cluster.has_image:
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker does not know the cluster yet.")
        coordinators.want_topic()
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The topic {coordinators.topic} is being created.")
    broker = svc.image.brokers.get(place.leader)
    endpoint = None if broker is None else broker.endpoint(ctx.listener)
    if endpoint is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition has no leader.")
    return FindCoordinatorResponse.Coordinator(key=key, node_id=place.leader, host=endpoint.host, port=endpoint.port)


def _failed(key: str, code: ErrorCode, message: str) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )


def _on_error(req: FindCoordinatorRequest, code: ErrorCode, version: int) -> FindCoordinatorResponse:
    if version >= 4:
        return FindCoordinatorResponse(coordinators=[_failed(key, code, "") for key in req.coordinator_keys])
    return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)


_each = {
    GROUP: for_each("coordinator_keys", "coordinators", Op.DESCRIBE, ResourceType.GROUP, name="", answer_name="key"),
    TRANSACTION: for_each(
        "coordinator_keys", "coordinators", Op.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name="", answer_name="key"
    ),
}
_one = {
    GROUP: needs(Permission(Op.DESCRIBE, ResourceType.GROUP, lambda request: request.key)),
    TRANSACTION: needs(Permission(Op.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lambda request: request.key)),
}


_between_brokers = needs(on_cluster(Op.CLUSTER_ACTION))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """The handler rejects other types of keys from any caller. Share partitions are between brokers."""
    if check.request.key_type == SHARE and check.version >= _SHARE_FROM and is_enabled(check.services):
        return (yield from _between_brokers(check))
    declared = (_each if check.version >= 4 else _one).get(check.request.key_type, unrestricted)
    return (yield from declared(check))


API = Api(ApiKey.FIND_COORDINATOR, (0, 6), handle, access=_access, on_error=_on_error)
