"""Every API has a declaration, and keeps it: in every version, a caller without permission gets the error and nothing
else; one with just the needed permissions is served. The requests are those of `test_every_version`; the table says for
each API which permissions it needs and what a caller without them gets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.apis import APIS
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import TELEMETRY
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.principals import Principal
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import topic
from barnabas.server.tests.apis.test_every_version import (
    NOT_AN_ERROR,
    PAIRS,
    REQUESTS,
    SHARE_STATE,
    TOKENS,
    build,
    codes,
    prepare,
)

Op, E = AclOperation, ErrorCode
ALICE = Principal("User", "alice")
WITH_AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
Needed = tuple[ResourceType, str, Op]


def cluster(*operations: Op) -> list[Needed]:
    return [(ResourceType.CLUSTER, "kafka-cluster", operation) for operation in operations]


def on_topic(*operations: Op, name: str = "t") -> list[Needed]:
    return [(ResourceType.TOPIC, name, operation) for operation in operations]


def group(operation: Op, name: str = "g") -> list[Needed]:
    return [(ResourceType.GROUP, name, operation)]


def transaction(operation: Op) -> list[Needed]:
    return [(ResourceType.TRANSACTIONAL_ID, "x", operation)]


class Rule(NamedTuple):
    """`needed`: permissions that are enough; `denied`: the error without them, NONE if the answer just has less."""

    needed: list[Needed]
    denied: E


T, G, C, X = (
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

RULES: dict[ApiKey, Rule] = {
    ApiKey.PRODUCE: Rule(on_topic(Op.WRITE), T),
    ApiKey.FETCH: Rule(on_topic(Op.READ), T),
    ApiKey.LIST_OFFSETS: Rule(on_topic(Op.DESCRIBE), T),
    ApiKey.METADATA: Rule(on_topic(Op.DESCRIBE), T),
    ApiKey.OFFSET_COMMIT: Rule(group(Op.READ) + group(Op.READ, "idle") + on_topic(Op.READ), G),
    ApiKey.OFFSET_FETCH: Rule(group(Op.DESCRIBE, "idle") + on_topic(Op.DESCRIBE), G),
    ApiKey.FIND_COORDINATOR: Rule(group(Op.DESCRIBE), G),
    ApiKey.JOIN_GROUP: Rule(group(Op.READ, "j"), G),
    ApiKey.HEARTBEAT: Rule(group(Op.READ), G),
    ApiKey.LEAVE_GROUP: Rule(group(Op.READ), G),
    ApiKey.SYNC_GROUP: Rule(group(Op.READ), G),
    ApiKey.DESCRIBE_GROUPS: Rule(group(Op.DESCRIBE), G),
    ApiKey.LIST_GROUPS: Rule(group(Op.DESCRIBE), E.NONE),
    ApiKey.API_VERSIONS: Rule([], E.NONE),
    ApiKey.CREATE_TOPICS: Rule(on_topic(Op.CREATE, Op.DESCRIBE_CONFIGS, name="new"), T),
    ApiKey.DELETE_TOPICS: Rule(on_topic(Op.DELETE), T),
    ApiKey.DELETE_RECORDS: Rule(on_topic(Op.DELETE), T),
    ApiKey.INIT_PRODUCER_ID: Rule(on_topic(Op.WRITE, name="any"), C),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(transaction(Op.WRITE) + on_topic(Op.WRITE) + cluster(Op.CLUSTER_ACTION), X),
    ApiKey.ADD_OFFSETS_TO_TXN: Rule(transaction(Op.WRITE) + group(Op.READ), X),
    ApiKey.END_TXN: Rule(transaction(Op.WRITE), X),
    ApiKey.WRITE_TXN_MARKERS: Rule(cluster(Op.ALTER), C),
    ApiKey.TXN_OFFSET_COMMIT: Rule(transaction(Op.WRITE) + group(Op.READ) + on_topic(Op.READ), X),
    ApiKey.DESCRIBE_ACLS: Rule(cluster(Op.DESCRIBE), C),
    ApiKey.CREATE_ACLS: Rule(cluster(Op.ALTER), C),
    ApiKey.DELETE_ACLS: Rule(cluster(Op.ALTER), C),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Rule(cluster(Op.DESCRIBE_CONFIGS), C),
    ApiKey.ALTER_CLIENT_QUOTAS: Rule(cluster(Op.ALTER_CONFIGS), C),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Rule(cluster(Op.DESCRIBE), C),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Rule(cluster(Op.ALTER), C),
    ApiKey.UPDATE_FEATURES: Rule(cluster(Op.ALTER), C),
    ApiKey.DESCRIBE_QUORUM: Rule(cluster(Op.DESCRIBE), C),
    ApiKey.DESCRIBE_TRANSACTIONS: Rule(transaction(Op.DESCRIBE) + on_topic(Op.DESCRIBE), X),
    ApiKey.LIST_TRANSACTIONS: Rule(transaction(Op.DESCRIBE), E.NONE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(on_topic(Op.DESCRIBE), T),
    ApiKey.DESCRIBE_CONFIGS: Rule(on_topic(Op.DESCRIBE_CONFIGS), T),
    ApiKey.ALTER_CONFIGS: Rule(on_topic(Op.ALTER_CONFIGS), T),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(on_topic(Op.ALTER_CONFIGS), T),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Rule(cluster(Op.ALTER), C),
    ApiKey.DESCRIBE_LOG_DIRS: Rule(cluster(Op.DESCRIBE), C),
    ApiKey.CREATE_PARTITIONS: Rule(on_topic(Op.ALTER), T),
    ApiKey.DELETE_GROUPS: Rule(group(Op.DELETE, "idle"), G),
    ApiKey.ELECT_LEADERS: Rule(cluster(Op.ALTER), C),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Rule(cluster(Op.ALTER), C),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Rule(cluster(Op.DESCRIBE), C),
    ApiKey.OFFSET_DELETE: Rule(group(Op.DELETE, "idle") + on_topic(Op.READ), G),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rule(group(Op.READ, "n") + on_topic(Op.DESCRIBE), G),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rule(group(Op.DESCRIBE), G),
    ApiKey.DESCRIBE_CLUSTER: Rule([], E.NONE),
    ApiKey.DESCRIBE_PRODUCERS: Rule(on_topic(Op.READ), T),
    ApiKey.LIST_CONFIG_RESOURCES: Rule(cluster(Op.DESCRIBE_CONFIGS), C),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(on_topic(Op.DESCRIBE), T),
    ApiKey.SHARE_GROUP_HEARTBEAT: Rule(group(Op.READ, "s") + on_topic(Op.DESCRIBE), G),
    ApiKey.SHARE_GROUP_DESCRIBE: Rule(group(Op.DESCRIBE), G),
    ApiKey.SHARE_FETCH: Rule(group(Op.READ, "s") + on_topic(Op.READ), G),
    ApiKey.SHARE_ACKNOWLEDGE: Rule(group(Op.READ, "s"), G),
    **dict.fromkeys(SHARE_STATE, Rule(cluster(Op.CLUSTER_ACTION), C)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(group(Op.DESCRIBE, "s") + on_topic(Op.DESCRIBE), G),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Rule(group(Op.READ, "s") + on_topic(Op.READ), G),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Rule(group(Op.READ, "k") + on_topic(Op.DESCRIBE), G),
    ApiKey.STREAMS_GROUP_DESCRIBE: Rule(group(Op.DESCRIBE), G),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Rule(group(Op.DELETE, "s") + on_topic(Op.READ), G),
}
VERSIONS = {key: [version for other, version in PAIRS if other == key] for key, _ in PAIRS}

DENIED_OTHERWISE = {
    **{(ApiKey.ADD_PARTITIONS_TO_TXN, version): {C} for version in (4, 5)},
    **{(ApiKey.DESCRIBE_LOG_DIRS, version): set() for version in range(3)},
}
"""Of other callers than others: brokers. And where there is no place for a code: no directories."""

SEES_LESS = {ApiKey.LIST_GROUPS: "groups", ApiKey.LIST_TRANSACTIONS: "transaction_states"}


def allow(broker: Broker, needed: list[Needed], principal: Principal = ALICE) -> None:
    authorizer = broker.services.authorizer
    assert authorizer is not None
    for kind, name, operation in needed:
        pattern = ResourcePattern(kind, name)
        entry = AccessControlEntry(str(principal), "*", operation, PermissionType.ALLOW)
        authorizer.put(pattern, [*authorizer.index.entries(pattern), entry])


def test_every_api_has_a_declaration() -> None:
    """The type checker would say so, too; and nothing that anybody may ask has found its way here by mistake."""
    assert [api.key.name for api in APIS if not callable(api.load().access)] == []
    assert {api.key for api in APIS if api.load().access is unrestricted} == {
        ApiKey.API_VERSIONS,
        *TELEMETRY,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
    assert set(RULES) == set(VERSIONS) - {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, *TELEMETRY, *TOKENS}


@pytest.mark.parametrize("key", RULES, ids=lambda key: key.name)
async def test_a_caller_without_permission_gets_the_error_and_nothing_else(
    key: ApiKey, autojump_clock: trio.abc.Clock
) -> None:
    rule = RULES[key]
    async with (
        embedded_broker(**WITH_AUTHORIZER) as broker,
        connected(broker) as client,
        connected(broker, principal=ALICE) as alice,
    ):
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        for version in VERSIONS[key]:
            response = await alice.ask(build(key, REQUESTS[key](world, version)), version)
            expected = DENIED_OTHERWISE.get((key, version), {rule.denied} - {E.NONE})
            assert codes(response) - {0} == expected, (version, response)
            if key in SEES_LESS:
                assert getattr(response, SEES_LESS[key]) == []
        # Nothing has happened: an authorized caller is served as usual.
        version = VERSIONS[key][-1]
        response = await client.ask(build(key, REQUESTS[key](world, version)), version)
        assert codes(response) - {0} == allowed_codes(key, version)


def allowed_codes(key: ApiKey, version: int) -> set[Any]:
    return NOT_AN_ERROR.get((key, version), set()) - {E.SECURITY_DISABLED}


@pytest.mark.parametrize("key", RULES, ids=lambda key: key.name)
async def test_what_is_needed_is_enough(key: ApiKey, autojump_clock: trio.abc.Clock) -> None:
    for version in {VERSIONS[key][0], VERSIONS[key][-1]}:
        async with (
            embedded_broker(**WITH_AUTHORIZER) as broker,
            connected(broker) as client,
            connected(broker, principal=ALICE) as alice,
        ):
            world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
            allow(broker, RULES[key].needed)
            response = await alice.ask(build(key, REQUESTS[key](world, version)), version)
            assert codes(response) - {0} == allowed_codes(key, version), (version, response)
            if key in SEES_LESS:
                assert len(getattr(response, SEES_LESS[key])) == 1


@pytest.mark.parametrize("key", [key for key, rule in RULES.items() if len(rule.needed) > 1], ids=lambda key: key.name)
async def test_and_no_less_is(key: ApiKey, autojump_clock: trio.abc.Clock) -> None:
    """Each of the permissions is looked at, but for those that other callers or other versions need."""
    version = VERSIONS[key][0] if key is ApiKey.ADD_PARTITIONS_TO_TXN else VERSIONS[key][-1]
    async with (
        embedded_broker(**WITH_AUTHORIZER) as broker,
        connected(broker) as client,
        connected(broker, principal=ALICE) as alice,
    ):
        world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
        authorizer = broker.services.authorizer
        assert authorizer is not None
        for missing in RULES[key].needed:
            if missing in ((ResourceType.GROUP, "idle", Op.READ), *cluster(Op.CLUSTER_ACTION)):
                continue
            for pattern in authorizer.index.patterns():
                authorizer.put(pattern, [])
            allow(broker, [needed for needed in RULES[key].needed if needed != missing])
            response = await alice.ask(build(key, REQUESTS[key](world, version)), version)
            if key is ApiKey.DESCRIBE_TRANSACTIONS and missing[0] is ResourceType.TOPIC:
                assert response.transaction_states[0].topics == []
            else:
                assert codes(response) & {T, G, C, X}, (missing, response)
