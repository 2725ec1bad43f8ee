"""The APIs that brokers of a cluster ask of each other, by key: one import for all of them, for the first request
(`barnabas.server.apis.APIS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.apis.between_brokers import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from barnabas.server.requests.api import Api

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        each.API.key: each.API
        for each in (
            allocate_producer_ids,
            alter_partition,
            controlled_shutdown,
            leader_and_isr,
            stop_replica,
            update_metadata,
        )
    }
)
