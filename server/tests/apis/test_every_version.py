"""Every advertised version of every API answers a minimal valid request: in its own layout, without an error, without
a word in the log. The requests are a table by API; an API that is not in it fails the test.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode, decode, decoder, encode, request_class, response_class, uuid_to_text
from barnabas.kproto.classes import Record
from barnabas.kproto.frame import parse_response_header
from barnabas.kproto.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    StreamsGroupHeartbeatRequest,
    SyncGroupRequest,
)
from barnabas.kproto.notation import Struct
from barnabas.kproto.records import Record as DataRecord
from barnabas.kproto.records import build_batch
from barnabas.kproto.records_legacy import build_message_set
from barnabas.server.apis import APIS
from barnabas.server.requests.api import TELEMETRY
from barnabas.server.telemetry.subscribers import subscription_id
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import produce
from barnabas.server.tests.apis.records.test_produce import NOW_MS, batch, topic

TOPIC = 2
"""Resource type in requests about settings."""


class World(NamedTuple):
    """What there is to ask about: topic `t` with a record, group `g` with a member, group `idle` with an offset; for
    `TRANSACTIONAL` requests also transactional id `x` with an open transaction, of a producer with epoch 0.
    """

    topic_id: bytes
    broker_id: int
    member_id: str
    generation_id: int
    producer_id: int = -1


Values = dict[str, Any]


def build(api_key: ApiKey, values: Values) -> Any:
    """A request out of plain dictionaries."""
    cls = request_class(api_key)

    def record(struct: Struct, given: Values) -> Any:
        fields = {field.name: field for field in struct.fields}
        arguments = {}
        for name, value in given.items():
            inner = fields[name].struct
            if inner is not None and isinstance(value, list):
                value = [record(inner, each) for each in value]
            arguments[name] = value
        made = cls if struct is cls.__description__.struct else getattr(cls, struct.name)
        return made(**arguments)

    return record(cls.__description__.struct, values)


def named(world: World, version: int, by_id_from: int, field: str = "name") -> Values:
    """The topic, by name or from a version on by id."""
    return {"topic_id": world.topic_id} if version >= by_id_from else {field: "t"}


def records(version: int) -> bytes:
    if version >= 3:
        return batch(b"a")
    return build_message_set([DataRecord(0, NOW_MS, b"k", b"v")], magic=1 if version == 2 else 0)


def _produce(world: World, version: int) -> Values:
    partition = {"index": 0, "records": records(version)}
    return {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{**named(world, version, 13), "partition_data": [partition]}],
    }


def _fetch(world: World, version: int) -> Values:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    limit = {"max_bytes": 1000} if version >= 3 else {}
    return {**limit, "topics": [{**named(world, version, 13, "topic"), "partitions": [partition]}]}


def _offset_commit(world: World, version: int) -> Values:
    partition = {"partition_index": 0, "committed_offset": 1}
    member = {"generation_id_or_member_epoch": world.generation_id, "member_id": world.member_id} if version else {}
    topics = [{**named(world, version, 10), "partitions": [partition]}]
    return {"group_id": "g" if version else "idle", **member, "topics": topics}


def _offset_fetch(world: World, version: int) -> Values:
    topics = [{**named(world, version, 10), "partition_indexes": [0]}]
    group = {"group_id": "idle", "topics": topics}
    return {"groups": [group]} if version >= 8 else group


def _join_group(world: World, version: int) -> Values:
    static = {"group_instance_id": "first"} if version >= 5 else {}
    protocols = [{"name": "range", "metadata": b"m"}]
    return {
        "group_id": "j",
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": protocols,
        **static,
    }


def _member(world: World, version: int) -> Values:
    return {"group_id": "g", "generation_id": world.generation_id, "member_id": world.member_id}


def _sync_group(world: World, version: int) -> Values:
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return {**_member(world, version), **protocol}


def _leave_group(world: World, version: int) -> Values:
    member = {"member_id": world.member_id}
    return {"group_id": "g", "members": [member]} if version >= 3 else {"group_id": "g", **member}


def _settings(configs: list[Values]) -> Callable[[World, int], Values]:
    return lambda world, version: {
        "resources": [{"resource_type": TOPIC, "resource_name": "t", "configs": configs}],
    }


def _alter_reassignments(world: World, version: int) -> Values:
    partition = {"partition_index": 0, "replicas": [world.broker_id]}
    return {"timeout_ms": 1000, "topics": [{"name": "t", "partitions": [partition]}]}


def _always(**values: Any) -> Callable[[World, int], Values]:
    return lambda world, version: values


def _transaction(world: World) -> Values:
    return {"transactional_id": "x", "producer_id": world.producer_id, "producer_epoch": 0}


def _add_partitions(world: World, version: int) -> Values:
    asked = {**_transaction(world), "topics": [{"name": "t", "partitions": [0]}]}
    if version >= 4:
        return {"transactions": [{**asked, "verify_only": True}]}
    return {f"v3_and_below_{name}": value for name, value in asked.items()}


def _write_markers(world: World, version: int) -> Values:
    who = {"producer_id": world.producer_id, "producer_epoch": 0}
    newer = {"transaction_version": 1} if version >= 2 else {}
    topics = [{"name": "t", "partition_indexes": [0]}]
    return {"markers": [{**who, "transaction_result": False, "topics": topics, "coordinator_epoch": 0, **newer}]}


def _txn_offset_commit(world: World, version: int) -> Values:
    member = {"generation_id": world.generation_id, "member_id": world.member_id} if version >= 3 else {}
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [partition]}]
    return {**_transaction(world), "group_id": "g", **member, "topics": topics}


def _update_features(world: World, version: int) -> Values:
    how = {"upgrade_type": 2} if version else {"allow_downgrade": True}
    return {"feature_updates": [{"feature": "transaction.version", "max_version_level": 1, **how}]}


def _consumer_heartbeat(world: World, version: int) -> Values:
    return {
        "group_id": "n",
        "member_id": "m" if version else "",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }


def _of_share_partition(world: World, *, key: str = "partition", **partition: Any) -> Values:
    return {"group_id": "s", "topics": [{"topic_id": world.topic_id, "partitions": [{key: 0, **partition}]}]}


def _share_fetch(world: World, version: int) -> Values:
    return {
        **_of_share_partition(world, key="partition_index"),
        "group_id": "s",
        "member_id": "m",
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
    }


def _acl(world: World, version: int) -> Values:
    pattern = {"resource_pattern_type": 4} if version else {}
    entry = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return {"creations": [{"resource_type": TOPIC, "resource_name": "t", **pattern, **entry}]}


def _acl_filter(version: int) -> Values:
    pattern = {"pattern_type_filter": 1} if version else {}
    return {"resource_type_filter": 7 if version >= 3 else 1, **pattern, "operation": 1, "permission_type": 1}


REQUESTS: dict[ApiKey, Callable[[World, int], Values]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _always(
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1, "max_num_offsets": 1}]}]
    ),
    ApiKey.METADATA: _always(topics=[{"name": "t"}]),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: lambda world, version: {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"},
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _member,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _always(groups=["g"]),
    ApiKey.LIST_GROUPS: _always(),
    ApiKey.API_VERSIONS: lambda world, version: (
        {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    ),
    ApiKey.CREATE_TOPICS: _always(
        topics=[{"name": "new", "num_partitions": 1, "replication_factor": 1}], timeout_ms=60_000
    ),
    ApiKey.DELETE_TOPICS: lambda world, version: {
        "timeout_ms": 1000,
        **({"topics": [{"name": "t"}]} if version >= 6 else {"topic_names": ["t"]}),
    },
    ApiKey.DELETE_RECORDS: _always(
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}], timeout_ms=60_000
    ),
    ApiKey.INIT_PRODUCER_ID: _always(transactional_id=None, transaction_timeout_ms=1000),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda world, version: {**_transaction(world), "group_id": "g"},
    ApiKey.END_TXN: lambda world, version: {**_transaction(world), "committed": True},
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.DESCRIBE_TRANSACTIONS: _always(transactional_ids=["x"]),
    ApiKey.LIST_TRANSACTIONS: lambda world, version: {
        "state_filters": ["Ongoing"],
        **({"transactional_id_pattern": "x.*"} if version >= 2 else {}),
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _always(
        topics=[{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    ),
    ApiKey.SASL_HANDSHAKE: _always(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: _always(auth_bytes=b"\0alice\0secret"),
    ApiKey.DESCRIBE_ACLS: lambda world, version: _acl_filter(version),
    ApiKey.CREATE_ACLS: _acl,
    ApiKey.DELETE_ACLS: lambda world, version: {"filters": [_acl_filter(version)]},
    ApiKey.DESCRIBE_CONFIGS: _always(resources=[{"resource_type": TOPIC, "resource_name": "t"}]),
    ApiKey.ALTER_CONFIGS: _settings([{"name": "retention.ms", "value": "5000"}]),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _always(dirs=[{"path": "/no", "topics": [{"name": "t", "partitions": [0]}]}]),
    ApiKey.DESCRIBE_LOG_DIRS: _always(topics=None),
    ApiKey.CREATE_PARTITIONS: _always(topics=[{"name": "t", "count": 2, "assignments": None}], timeout_ms=60_000),
    ApiKey.DELETE_GROUPS: _always(groups_names=["idle"]),
    ApiKey.ELECT_LEADERS: _always(topic_partitions=[{"topic": "t", "partitions": [0]}], timeout_ms=60_000),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _settings([{"name": "retention.ms", "config_operation": 0, "value": "5000"}]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _always(topics=None, timeout_ms=60_000),
    ApiKey.OFFSET_DELETE: _always(group_id="idle", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _always(components=[{"entity_type": "user", "match_type": 2, "match": None}]),
    ApiKey.ALTER_CLIENT_QUOTAS: _always(
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "u"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
        ]
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _always(users=None),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _always(
        upsertions=[{"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}]
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _always(
        renewers=[{"principal_type": "User", "principal_name": "bob"}], max_lifetime_ms=1000
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: _always(hmac=b"h", renew_period_ms=1000),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _always(hmac=b"h", expiry_time_period_ms=1000),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _always(owners=[{"principal_type": "User", "principal_name": "bob"}]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _always(group_ids=["g"]),
    ApiKey.DESCRIBE_CLUSTER: _always(),
    ApiKey.DESCRIBE_QUORUM: _always(
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    ),
    ApiKey.DESCRIBE_PRODUCERS: _always(topics=[{"name": "t", "partition_indexes": [0]}]),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _always(client_instance_id=b"instance".ljust(16)),
    ApiKey.PUSH_TELEMETRY: _always(
        client_instance_id=b"instance".ljust(16),
        subscription_id=subscription_id((), 300_000, b"instance".ljust(16)),
        metrics=b"\n\0",
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _always(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _always(topics=[{"name": "t"}]),
    ApiKey.SHARE_GROUP_HEARTBEAT: _always(group_id="s", member_id="m", subscribed_topic_names=["t"]),
    ApiKey.SHARE_GROUP_DESCRIBE: _always(group_ids=["g"]),
    ApiKey.SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: lambda world, version: {
        **_of_share_partition(world, acknowledgement_batches=[], key="partition_index"),
        "group_id": "s",
        "member_id": "m",
        "share_session_epoch": 1,
    },
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: lambda world, version: _of_share_partition(
        world, state_epoch=1, start_offset=0
    ),
    ApiKey.READ_SHARE_GROUP_STATE: lambda world, version: _of_share_partition(world, leader_epoch=0),
    ApiKey.WRITE_SHARE_GROUP_STATE: lambda world, version: _of_share_partition(
        world, state_epoch=1, leader_epoch=0, start_offset=0
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: lambda world, version: _of_share_partition(world),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: lambda world, version: _of_share_partition(world, leader_epoch=0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _always(
        groups=[{"group_id": "s", "topics": [{"topic_name": "t", "partitions": [0]}]}]
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _always(
        group_id="s",
        topics=[{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}],
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _always(group_id="s", topics=[{"topic_name": "t"}]),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _always(
        group_id="k",
        member_id="m",
        rebalance_timeout_ms=1000,
        process_id="p",
        topology=StreamsGroupHeartbeatRequest.Topology(
            subtopologies=[StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=["t"])]
        ),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: _always(group_ids=["g"]),
}

TRANSACTIONAL = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
}

TOKENS = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
"""What `security/test_token_apis.py` asks on a listener where it is answered otherwise."""

SHARE_STATE = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)

NOT_AN_ERROR = {
    (ApiKey.SHARE_GROUP_DESCRIBE, 1): {ErrorCode.GROUP_ID_NOT_FOUND},
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0): {ErrorCode.GROUP_ID_NOT_FOUND},
    (ApiKey.STREAMS_GROUP_DESCRIBE, 0): {ErrorCode.GROUP_ID_NOT_FOUND},
    **{(ApiKey.SHARE_ACKNOWLEDGE, version): {ErrorCode.SHARE_SESSION_NOT_FOUND} for version in (1, 2)},
    (ApiKey.READ_SHARE_GROUP_STATE, 0): {ErrorCode.INVALID_REQUEST},
    **{(ApiKey.WRITE_SHARE_GROUP_STATE, version): {ErrorCode.INVALID_REQUEST} for version in (0, 1)},
    (ApiKey.ELECT_LEADERS, 0): {ErrorCode.ELECTION_NOT_NEEDED},
    (ApiKey.ELECT_LEADERS, 1): {ErrorCode.ELECTION_NOT_NEEDED},
    (ApiKey.ELECT_LEADERS, 2): {ErrorCode.ELECTION_NOT_NEEDED},
    (ApiKey.JOIN_GROUP, 4): {ErrorCode.MEMBER_ID_REQUIRED},
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0): {ErrorCode.GROUP_ID_NOT_FOUND},
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1): {ErrorCode.GROUP_ID_NOT_FOUND},
    **{
        (key, version): {ErrorCode.SECURITY_DISABLED}
        for key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
        for version in range(4)
    },
    **{(ApiKey.SASL_HANDSHAKE, version): {ErrorCode.ILLEGAL_SASL_STATE} for version in range(2)},
    **{(ApiKey.SASL_AUTHENTICATE, version): {ErrorCode.ILLEGAL_SASL_STATE} for version in range(3)},
    **{(key, version): {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED} for key in TOKENS for version in range(4)},
    **{(ApiKey.ALTER_REPLICA_LOG_DIRS, version): {ErrorCode.LOG_DIR_NOT_FOUND} for version in range(3)},
}
"""Answers that say that all is well, with a code: no share group; no share session; a share partition that nobody has
initialized; nothing to elect; come again with the id given; a classic group; no authorizer; a listener without SASL,
twice; no such place."""

PAIRS = [
    (api.key, version)
    for api in APIS
    if api.is_served(clustered=False, telemetry=True)
    for version in range(api.versions[0], api.versions[1] + 1)
]


WITH_METRICS = {"metrics_listener": "http://127.0.0.1:0"}


def settings_for(key: ApiKey) -> dict[str, str]:
    """What a broker needs to serve it."""
    return WITH_METRICS if key in TELEMETRY else {}


def codes(value: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    if isinstance(value, list):
        return {code for each in value for code in codes(each)}
    if not isinstance(value, Record):
        return set()
    found = set()
    for name in value.__fields__:
        inner = getattr(value, name)
        found |= {inner} if name.endswith("error_code") and isinstance(inner, int) else codes(inner)
    return found


async def find_coordinator(client: Client, request: FindCoordinatorRequest, version: int) -> None:
    for _ in range(50):
        if (await client.ask(request, version)).error_code == 0:
            break
        await trio.sleep(0.1)  # the first to ask makes the topic


async def begin_transaction(client: Client) -> int:
    """The producer id of transactional id `x`."""
    await find_coordinator(client, FindCoordinatorRequest(key="x", key_type=1), 1)
    producer = await client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 0)
    assert (producer.error_code, producer.producer_epoch) == (0, 0)
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    added = await client.ask(request, 0)
    assert codes(added) == {0}
    offsets = AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=0, group_id="g"
    )
    assert (await client.ask(offsets, 0)).error_code == 0
    return producer.producer_id


async def prepare(client: Client, topic_id: bytes, broker_id: int, key: ApiKey) -> World:
    await produce(client, bytes(build_batch([DataRecord(0, NOW_MS, b"k", b"v")])))
    await find_coordinator(client, FindCoordinatorRequest(key="g"), 0)
    joined = await client.ask(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        0,
    )
    member = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert (await client.ask(SyncGroupRequest(group_id="g", **member), 0)).error_code == 0
    topics = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    committed = await client.ask(OffsetCommitRequest(group_id="idle", topics=[topics]), 2)
    assert committed.topics[0].partitions[0].error_code == 0
    if key in SHARE_STATE:
        share_key = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"s:{uuid_to_text(topic_id)}:0"])
        for _ in range(50):
            if codes(await client.ask(share_key, 6)) == {0}:
                break
            await trio.sleep(0.1)
    producer_id = await begin_transaction(client) if key in TRANSACTIONAL else -1
    return World(topic_id, broker_id, joined.member_id, joined.generation_id, producer_id)


@pytest.mark.parametrize(("key", "version"), PAIRS, ids=[f"{key.name}-{version}" for key, version in PAIRS])
async def test_a_valid_request_is_answered(
    key: ApiKey, version: int, autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "barnabas"):
        async with embedded_broker(**settings_for(key)) as broker, connected(broker) as client:
            world = await prepare(client, await topic(broker), broker.services.config.broker_id, key)
            caplog.clear()
            request = build(key, REQUESTS[key](world, version))
            await client.send(request, version)
            with trio.fail_after(60):
                frame = await client.receive_frame()
            _, offset = parse_response_header(key, version, frame)
            response, end = decoder(response_class(key), version)(frame, offset)
            assert end == len(frame)
            assert codes(response) - {0} == NOT_AN_ERROR.get((key, version), set())
            # The broker goes on, with the oldest and the newest way to ask who it is.
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_what_is_advertised_is_what_is_tried(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(**WITH_METRICS) as broker, connected(broker) as client:
        answer = await client.ask(ApiVersionsRequest(), 0)
    advertised = {
        (ApiKey(each.api_key), version)
        for each in answer.api_keys
        for version in range(each.min_version, each.max_version + 1)
    }
    assert advertised == set(PAIRS)
    assert set(REQUESTS) == {key for key, _ in PAIRS}


@pytest.mark.parametrize(("key", "version"), PAIRS, ids=[f"{key.name}-{version}" for key, version in PAIRS])
def test_the_requests_of_the_table_survive_the_codec(key: ApiKey, version: int) -> None:
    """A value in a field that the version does not have would not be sent: the table would test something else."""
    world = World(b"\1" * 16, 1, "member", 1, 1)
    values = REQUESTS[key](world, version)
    decoded = decode(request_class(key), version, encode(build(key, values), version))
    for name, value in values.items():
        if not isinstance(value, list):
            assert getattr(decoded, name) == value, name
        else:
            assert len(getattr(decoded, name)) == len(value), name
