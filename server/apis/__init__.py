"""One file per API.

`APIS` is the broker's list of what it serves, by key; ApiVersions, dispatch and the tests read the same tuple.

Not obvious:

- Topic ids decide in Fetch 13+ and Produce 13: a re-created topic has a new id, and old names in sessions answer
  UNKNOWN_TOPIC_ID.
- No local class and no function that refers to itself in a handler (server/tests/apis/test_no_cycles.py): both are
  cycles, and with them stays what the request was about.
- What most clients never ask is `_late`: imported for the first request, or soon after the start (`load_rest`). With
  what it needs it would be a tenth of the time to start. What producers, consumers and groups ask is there before.
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
from barnabas.server.requests.api import AnyApi, LateApi


def _late(key: ApiKey, versions: tuple[int, int], folder: str, *, is_rare: bool = False) -> LateApi:
    return LateApi(key, versions, f"{__name__}.{folder}.{key.name.lower()}", is_rare)


APIS: tuple[AnyApi, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    _late(ApiKey.LEADER_AND_ISR, (0, 7), "between_brokers"),
    _late(ApiKey.STOP_REPLICA, (0, 4), "between_brokers"),
    _late(ApiKey.UPDATE_METADATA, (0, 8), "between_brokers"),
    _late(ApiKey.CONTROLLED_SHUTDOWN, (0, 3), "between_brokers"),
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
    _late(ApiKey.DELETE_RECORDS, (0, 2), "records"),
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    write_txn_markers.API,
    txn_offset_commit.API,
    _late(ApiKey.DESCRIBE_ACLS, (0, 3), "security"),
    _late(ApiKey.CREATE_ACLS, (0, 3), "security"),
    _late(ApiKey.DELETE_ACLS, (0, 3), "security"),
    _late(ApiKey.DESCRIBE_CONFIGS, (0, 4), "configs"),
    _late(ApiKey.ALTER_CONFIGS, (0, 2), "configs"),
    _late(ApiKey.ALTER_REPLICA_LOG_DIRS, (0, 2), "cluster"),
    _late(ApiKey.DESCRIBE_LOG_DIRS, (0, 5), "cluster"),
    sasl_authenticate.API,
    _late(ApiKey.CREATE_PARTITIONS, (0, 3), "topics"),
    _late(ApiKey.CREATE_DELEGATION_TOKEN, (0, 3), "security"),
    _late(ApiKey.RENEW_DELEGATION_TOKEN, (0, 2), "security"),
    _late(ApiKey.EXPIRE_DELEGATION_TOKEN, (0, 2), "security"),
    _late(ApiKey.DESCRIBE_DELEGATION_TOKEN, (0, 3), "security"),
    delete_groups.API,
    _late(ApiKey.ELECT_LEADERS, (0, 2), "topics"),
    _late(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), "configs"),
    _late(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), "topics"),
    _late(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), "topics"),
    offset_delete.API,
    _late(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), "security"),
    _late(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), "security"),
    _late(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), "security"),
    _late(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), "security"),
    _late(ApiKey.DESCRIBE_QUORUM, (0, 2), "cluster"),
    _late(ApiKey.ALTER_PARTITION, (0, 3), "between_brokers"),
    _late(ApiKey.UPDATE_FEATURES, (0, 2), "cluster"),
    describe_cluster.API,
    _late(ApiKey.DESCRIBE_PRODUCERS, (0, 0), "transactions"),
    _late(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), "transactions"),
    _late(ApiKey.LIST_TRANSACTIONS, (0, 2), "transactions"),
    _late(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), "between_brokers"),
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    get_telemetry_subscriptions.API,
    push_telemetry.API,
    _late(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), "configs"),
    _late(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), "topics"),
    _late(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), "groups", is_rare=True),
    _late(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), "groups", is_rare=True),
    _late(ApiKey.SHARE_FETCH, (1, 2), "groups", is_rare=True),
    _late(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), "groups", is_rare=True),
    _late(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), "between_brokers", is_rare=True),
    _late(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), "between_brokers", is_rare=True),
    _late(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), "between_brokers", is_rare=True),
    _late(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), "between_brokers", is_rare=True),
    _late(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), "between_brokers", is_rare=True),
    _late(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), "groups", is_rare=True),
    _late(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), "groups", is_rare=True),
    _late(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), "groups", is_rare=True),
    _late(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), "groups", is_rare=True),
    _late(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), "groups", is_rare=True),
)


def load_rest() -> None:
    """Import what any broker may be asked: a broker that runs for long must not depend on files that somebody replaces,
    nor let its first administrator wait. Not what few clusters have.
    """
    for api in APIS:
        if isinstance(api, LateApi) and not api.is_rare:
            api.load()
