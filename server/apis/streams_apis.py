"""The APIs of streams groups by key: one import for both, for the first request (`barnabas.server.apis.APIS`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.apis.groups import streams_group_describe, streams_group_heartbeat
from barnabas.server.requests.api import Api

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {each.API.key: each.API for each in (streams_group_heartbeat, streams_group_describe)}
)
