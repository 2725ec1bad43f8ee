"""One file per API.

`APIS` is the broker's list of what it serves, by key; ApiVersions, dispatch and the tests read the same tuple.

Not obvious:

- Topic ids decide in Fetch 13+ and Produce 13: a re-created topic has a new id, and old names in sessions answer
  UNKNOWN_TOPIC_ID.
- No local class and no function that refers to itself in a handler (server/tests/apis/test_no_cycles.py): both are
  cycles, and with them stays what the request was about.
- What most clients never ask (`admin_apis`, `security_apis`, `between_brokers_apis`, `share_apis`, `streams_apis`) is
  imported for the first request, or soon after the start (`load_rest`): with what it needs it would be a tenth of the
  time to start. What producers, consumers and groups ask is there before.
"""

from barnabas.kproto import ApiKey
from barnabas.server.apis.cluster import api_versions, describe_cluster
from barnabas.server.apis.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from barnabas.server.apis.records import fetch, list_offsets, offset_for_leader_epoch, produce
from barnabas.server.apis.security import sasl_authenticate, sasl_handshake
from barnabas.server.apis.telemetry import get_telemetry_subscriptions, push_telemetry
from barnabas.server.apis.topics import create_topics, delete_topics, metadata
from barnabas.server.apis.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
    write_txn_markers,
)
from barnabas.server.requests.api import AnyApi, Api, LateApi


def _between_brokers_api(key: ApiKey) -> Api:
    from barnabas.server.apis import between_brokers_apis

    return between_brokers_apis.APIS[key]


def _admin_api(key: ApiKey) -> Api:
    from barnabas.server.apis import admin_apis

    return admin_apis.APIS[key]


def _security_api(key: ApiKey) -> Api:
    from barnabas.server.apis import security_apis

    return security_apis.APIS[key]


def _share_api(key: ApiKey) -> Api:
    from barnabas.server.apis import share_apis

    return share_apis.APIS[key]


def _streams_api(key: ApiKey) -> Api:
    from barnabas.server.apis import streams_apis

    return streams_apis.APIS[key]


APIS: tuple[AnyApi, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    LateApi(ApiKey.LEADER_AND_ISR, (0, 7), _between_brokers_api),
    LateApi(ApiKey.STOP_REPLICA, (0, 4), _between_brokers_api),
    LateApi(ApiKey.UPDATE_METADATA, (0, 8), _between_brokers_api),
    LateApi(ApiKey.CONTROLLED_SHUTDOWN, (0, 3), _between_brokers_api),
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    sasl_handshake.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    LateApi(ApiKey.DELETE_RECORDS, (0, 2), _admin_api),
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    write_txn_markers.API,
    txn_offset_commit.API,
    LateApi(ApiKey.DESCRIBE_ACLS, (0, 3), _security_api),
    LateApi(ApiKey.CREATE_ACLS, (0, 3), _security_api),
    LateApi(ApiKey.DELETE_ACLS, (0, 3), _security_api),
    LateApi(ApiKey.DESCRIBE_CONFIGS, (0, 4), _admin_api),
    LateApi(ApiKey.ALTER_CONFIGS, (0, 2), _admin_api),
    LateApi(ApiKey.ALTER_REPLICA_LOG_DIRS, (0, 2), _admin_api),
    LateApi(ApiKey.DESCRIBE_LOG_DIRS, (0, 5), _admin_api),
    sasl_authenticate.API,
    LateApi(ApiKey.CREATE_PARTITIONS, (0, 3), _admin_api),
    LateApi(ApiKey.CREATE_DELEGATION_TOKEN, (0, 3), _security_api),
    LateApi(ApiKey.RENEW_DELEGATION_TOKEN, (0, 2), _security_api),
    LateApi(ApiKey.EXPIRE_DELEGATION_TOKEN, (0, 2), _security_api),
    LateApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, (0, 3), _security_api),
    delete_groups.API,
    LateApi(ApiKey.ELECT_LEADERS, (0, 2), _admin_api),
    LateApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), _admin_api),
    LateApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), _admin_api),
    LateApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), _admin_api),
    offset_delete.API,
    LateApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), _security_api),
    LateApi(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), _security_api),
    LateApi(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), _security_api),
    LateApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), _security_api),
    LateApi(ApiKey.DESCRIBE_QUORUM, (0, 2), _admin_api),
    LateApi(ApiKey.ALTER_PARTITION, (0, 3), _between_brokers_api),
    LateApi(ApiKey.UPDATE_FEATURES, (0, 2), _admin_api),
    describe_cluster.API,
    LateApi(ApiKey.DESCRIBE_PRODUCERS, (0, 0), _admin_api),
    LateApi(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), _admin_api),
    LateApi(ApiKey.LIST_TRANSACTIONS, (0, 2), _admin_api),
    LateApi(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), _between_brokers_api),
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    get_telemetry_subscriptions.API,
    push_telemetry.API,
    LateApi(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), _admin_api),
    LateApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), _admin_api),
    LateApi(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), _share_api),
    LateApi(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), _share_api),
    LateApi(ApiKey.SHARE_FETCH, (1, 2), _share_api),
    LateApi(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), _share_api),
    LateApi(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), _share_api),
    LateApi(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), _share_api),
    LateApi(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), _share_api),
    LateApi(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), _share_api),
    LateApi(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), _share_api),
    LateApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), _share_api),
    LateApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), _share_api),
    LateApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), _share_api),
    LateApi(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), _streams_api),
    LateApi(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), _streams_api),
)


def load_rest() -> None:
    """Import what any broker may be asked: a broker that runs for long must not depend on files that somebody replaces,
    nor let its first administrator wait. Not the groups that few clusters have.
    """
    from barnabas.server.apis import admin_apis, between_brokers_apis, security_apis  # noqa: F401
