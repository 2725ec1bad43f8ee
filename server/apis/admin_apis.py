"""The APIs that only administrators' tools ask, but for those of `security_apis`, by key: one import for all of them,
for the first request (`barnabas.server.apis.APIS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.apis.cluster import alter_replica_log_dirs, describe_log_dirs, describe_quorum, update_features
from barnabas.server.apis.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from barnabas.server.apis.records import delete_records
from barnabas.server.apis.topics import (
    alter_partition_reassignments,
    create_partitions,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
)
from barnabas.server.apis.transactions import describe_producers, describe_transactions, list_transactions
from barnabas.server.requests.api import Api

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        each.API.key: each.API
        for each in (
            alter_replica_log_dirs,
            describe_log_dirs,
            describe_quorum,
            update_features,
            alter_configs,
            describe_configs,
            incremental_alter_configs,
            list_config_resources,
            delete_records,
            alter_partition_reassignments,
            create_partitions,
            describe_topic_partitions,
            elect_leaders,
            list_partition_reassignments,
            describe_producers,
            describe_transactions,
            list_transactions,
        )
    }
)
