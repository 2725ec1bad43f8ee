"""Every API in every version can be made to fail, where clients of that version look for an error, and answers as
usual when the fault is over.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.requests.faults.names import OWN_APIS, items_of, kinds_of, of_broker
from barnabas.server.requests.faults.rules import Act, Fault, Item
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import topic
from barnabas.server.tests.apis.test_every_version import (
    NOT_AN_ERROR,
    PAIRS,
    REQUESTS,
    World,
    build,
    codes,
    prepare,
    settings_for,
)

E = ErrorCode
CODE = E.COORDINATOR_LOAD_IN_PROGRESS
OF_OTHER_BROKERS = {(ApiKey.ADD_PARTITIONS_TO_TXN, 4), (ApiKey.ADD_PARTITIONS_TO_TXN, 5)}
MAPPED = {
    # Clients of these versions do not know the error: they get the one that Apache Kafka gives them for it.
    (ApiKey.TXN_OFFSET_COMMIT, 0): E.COORDINATOR_NOT_AVAILABLE,
    (ApiKey.TXN_OFFSET_COMMIT, 1): E.COORDINATOR_NOT_AVAILABLE,
}
ASKED = [pair for pair in PAIRS if pair not in OF_OTHER_BROKERS]


def asked(key: ApiKey, world: World, version: int) -> Any:
    """A client's request."""
    request = build(key, REQUESTS[key](world, version))
    if key is ApiKey.LIST_OFFSETS:
        request.replica_id = -1
    return request


@pytest.mark.parametrize(("key", "version"), ASKED, ids=[f"{key.name}-{version}" for key, version in ASKED])
async def test_it_fails_and_is_served_again(key: ApiKey, version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(may_fail=True, **settings_for(key)) as broker, connected(broker) as client:
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        request = asked(key, world, version)
        rule = broker.faults.add(Fault(frozenset((key,)), act=Act.ERROR, error=CODE, times=1))
        with trio.fail_after(60):
            failed = await client.ask(request, version)
            assert codes(failed) - {0} == {MAPPED.get((key, version), CODE)}
            assert (rule.seen, rule.hits) == (1, 1)
            usual = await client.ask(asked(key, world, version), version)
        assert codes(usual) - {0} == NOT_AN_ERROR.get((key, version), set())


@pytest.mark.parametrize(("key", "version"), PAIRS, ids=[f"{key.name}-{version}" for key, version in PAIRS])
async def test_what_a_request_names(key: ApiKey, version: int, autojump_clock: trio.abc.Clock) -> None:
    """The topic, the group or the transactional id of a request is found in it, and only what is said of its API."""
    async with embedded_broker(may_fail=True, **settings_for(key)) as broker, connected(broker) as client:
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        values = REQUESTS[key](world, version)
        request = asked(key, world, version)
        if of_broker(key, version, request):
            assert (key, version) in OF_OTHER_BROKERS
            return
        items = items_of(broker.services, key, version, request)
        found = {kind for item in items for kind in Item._fields if getattr(item, kind) is not None}
        assert found <= kinds_of(key)
        said = repr(values)
        if "topic" in kinds_of(key) and key is not ApiKey.ALTER_REPLICA_LOG_DIRS:
            assert "topic" in found, said
            assert {item.topic for item in items} <= {"t", "new"}
        if "group" in kinds_of(key) and "resource_type" not in said and key is not ApiKey.FIND_COORDINATOR:
            assert "group" in found, said


def test_what_only_brokers_ask_must_be_named() -> None:
    assert ApiKey.LEADER_AND_ISR in OWN_APIS
    assert ApiKey.FETCH not in OWN_APIS
