"""One file per API.

`APIS` is the broker's list of what it serves, by key; ApiVersions, dispatch and the tests read the same tuple.

Not obvious:

- Topic ids decide in Fetch 13+ and Produce 13: a re-created topic has a new id, and old names in sessions answer
  UNKNOWN_TOPIC_ID.
- No local class and no function that refers to itself in a handler (server/tests/apis/test_no_cycles.py): both are
  cycles, and with them stays what the request was about.
- APIs of share and of streams groups (`share_apis`, `streams_apis`) are imported for the first request: they, and what
  they need, would be a twentieth of the time to start.
"""

from barnabas.kproto import ApiKey
from barnabas.server.apis.between_brokers import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from barnabas.server.apis.cluster import (
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    update_features,
)
from barnabas.server.apis.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
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
from barnabas.server.apis.records import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from barnabas.server.apis.security import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.server.apis.telemetry import get_telemetry_subscriptions, push_telemetry
from barnabas.server.apis.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from barnabas.server.apis.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from barnabas.server.requests.api import AnyApi, Api, LateApi


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
    leader_and_isr.API,
    stop_replica.API,
    update_metadata.API,
    controlled_shutdown.API,
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
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    write_txn_markers.API,
    txn_offset_commit.API,
    describe_acls.API,
    create_acls.API,
    delete_acls.API,
    describe_configs.API,
    alter_configs.API,
    alter_replica_log_dirs.API,
    describe_log_dirs.API,
    sasl_authenticate.API,
    create_partitions.API,
    create_delegation_token.API,
    renew_delegation_token.API,
    expire_delegation_token.API,
    describe_delegation_token.API,
    delete_groups.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    describe_client_quotas.API,
    alter_client_quotas.API,
    describe_user_scram_credentials.API,
    alter_user_scram_credentials.API,
    describe_quorum.API,
    alter_partition.API,
    update_features.API,
    describe_cluster.API,
    describe_producers.API,
    describe_transactions.API,
    list_transactions.API,
    allocate_producer_ids.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    get_telemetry_subscriptions.API,
    push_telemetry.API,
    list_config_resources.API,
    describe_topic_partitions.API,
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
