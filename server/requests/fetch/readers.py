"""Which reader serves a fetcher: it decides from which replicas, up to which offset, and what is sent immediately.

`Fetch` (`barnabas.server.requests.fetch.fetching`) iterates over the partitions, and waits; a `Reader` reads one of
them. `reader_for` chooses it, once for each request:

| fetcher | reads from | up to | reader |
| --- | --- | --- | --- |
| a consumer | the leader, v11+ any replica | high watermark or last stable offset | `consumers.ConsumerReader` |
| … below v10 | the leader | the same, without zstd | `ReaderWithoutZstd` |
| … below v4 | the leader | the same, to be converted | `old_clients.ConvertingReader` |
| … with a rack (KIP-392) | the leader, which may name another replica | the same | `RackReader` |
| a tool (replica id -2) | any replica | the log's end | `AnyReplicaReader` |
| another broker (replica id 0 and above) | the leader | the log's end | `followers.FollowerReader` |
"""

from __future__ import annotations

from barnabas.kproto.messages import FetchRequest
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fetch.consumers import (
    FOLLOWERS_FROM,
    READ_COMMITTED,
    AnyReplicaReader,
    ConsumerReader,
    RackReader,
    ReaderWithoutZstd,
)
from barnabas.server.requests.fetch.followers import FollowerReader
from barnabas.server.requests.fetch.reader import ZSTD_FROM, Reader
from barnabas.server.requests.fetch.scope import Scope
from barnabas.server.requests.fetch.targets import REPLICA_STATE_FROM
from barnabas.server.requests.services import Services

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ANY_REPLICA = -2
"""The replica id of a tool that reads followers."""

_OF_CONSUMERS = tuple(
    tuple(
        (ReaderWithoutZstd if version < ZSTD_FROM else ConsumerReader)(version, read_committed)
        for version in range(FetchRequest.__description__.versions.last + 1)
    )
    for read_committed in (False, True)
)
"""By `read_committed` and version: they are stateless."""


def reader_for(svc: Services, ctx: RequestContext, req: FetchRequest, scope: Scope) -> Reader:
    """The reader for a request of version 4 or higher; older ones have their own."""
    version = ctx.api_version
    replica_id = req.replica_state.replica_id if version >= REPLICA_STATE_FROM else req.replica_id
    if replica_id >= 0:
        _, session, incremental = scope
        notify_high_watermark = session is not None and selects_by_rack(svc)
        return FollowerReader(svc, version, req, replica_id, incremental, notify_high_watermark)
    read_committed = req.isolation_level == READ_COMMITTED
    if req.rack_id and version >= FOLLOWERS_FROM and replica_id != ANY_REPLICA and selects_by_rack(svc):
        return RackReader(version, read_committed, svc, req.rack_id, ctx.listener)
    if replica_id == ANY_REPLICA:
        return AnyReplicaReader(version, read_committed)
    return reader_of_consumers(version, read_committed)


def reader_of_consumers(version: int, read_committed: bool) -> Reader:
    """The reader for those without a rack."""
    return _OF_CONSUMERS[read_committed][version]


def selects_by_rack(svc: Services) -> bool:
    """Whether consumers with a rack may be sent to another replica."""
    return svc.config.get_value("replica.selector.class") == RACK_AWARE_SELECTOR
