"""The APIs of share groups by key: one import for all of them, for the first request (`barnabas.server.apis.APIS`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.apis.between_brokers import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.server.apis.groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from barnabas.server.requests.api import Api

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        each.API.key: each.API
        for each in (
            share_group_heartbeat,
            share_group_describe,
            share_fetch,
            share_acknowledge,
            initialize_share_group_state,
            read_share_group_state,
            write_share_group_state,
            delete_share_group_state,
            read_share_group_state_summary,
            describe_share_group_offsets,
            alter_share_group_offsets,
            delete_share_group_offsets,
        )
    }
)
