"""Fetch (key 1, versions 0-18): read record batches, waiting for them if asked to.

Behaviour: consumers read up to the high watermark, `read_committed` ones up to the last stable offset, from the leader
or (v11+) from any replica that their metadata or the leader names; brokers that replicate read up to the log's end.
The answer holds slices of segment files, no bytes are read here. It is given at once when `min_bytes` are there, when
any partition has an error, a diverging epoch or a preferred replica, or when `max_wait_ms` is 0; otherwise the request
waits as a callback on its partitions plus a timer, and is planned again when enough bytes have come or the time is over
(`barnabas.server.requests.fetch.fetching`). Limits are soft: the first batch of the first non-empty partition is always
returned whole. Sessions (v7+): see `barnabas.server.requests.fetch.sessions`.

Followers (replica id >= 0): the offset they fetch from is what the leader knows of their progress. It may move the
high watermark and lead to a wider ISR. One that is no replica gets UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER if
it names no epoch (before v9). `leader.replication.throttled.rate` holds back those that are not in sync (KIP-73).

Versions:

- 0-1: message sets of format 0, converted by a task (`barnabas.server.requests.old_formats`)
- 2-3: message sets of format 1, likewise
- 3: soft limits, and one for the whole answer
- 4: batches as they are stored
- 5: log start offset
- 6: KAFKA_STORAGE_ERROR, which is NOT_LEADER_OR_FOLLOWER before
- 7: sessions
- 9: leader epochs (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH)
- 10: zstd; topics with `compression.type=zstd` answer UNSUPPORTED_COMPRESSION_TYPE before
- 11: rack, preferred read replica (KIP-392)
- 12: flexible; diverging epochs
- 13: topic ids (UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR)
- 15: replica state in a tag
- 16: with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH the current leader and its address
- 17: directory ids, which concern KRaft
- 18: the high watermark that the fetcher knows; a higher one is answered at once

`read_committed` gets the last stable offset and, from the transaction indexes, the aborted transactions that may have
records in what it gets; the indexes are coarse, so there may be others. Other consumers get null for the list.

Not done: followers of versions below 4.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.requests.api import PENDING, Api, Old
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.fetch import learn
from barnabas.server.requests.fetch.access import may_fetch
from barnabas.server.requests.fetch.fetching import Fetch
from barnabas.server.requests.fetch.large import AT_ONCE, fetch_in_turns
from barnabas.server.requests.fetch.old_clients import ConvertingReader, Waiting
from barnabas.server.requests.fetch.reader import PartitionData
from barnabas.server.requests.fetch.readers import reader_for
from barnabas.server.requests.fetch.scope import Scope, scope_in_turns, scope_of
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import LARGE_FRAME_BYTES


def handle(svc: Services, ctx: RequestContext, req: FetchRequest) -> object:
    count = 0
    for topic in req.topics:
        count += len(topic.partitions)
    if count > AT_ONCE:
        return _handle_large(svc, ctx, req)
    try:
        scope = scope_of(svc, ctx, req)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = _fetch(svc, ctx, req, scope)
    if len(fetch.targets) > AT_ONCE:  # of its session
        return fetch_in_turns(fetch, req.max_wait_ms)
    return fetch.start(req.max_wait_ms)


async def _handle_large(svc: Services, ctx: RequestContext, req: FetchRequest) -> object:
    """A request that names very many partitions."""
    try:
        scope = await scope_in_turns(svc, ctx, req)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return await fetch_in_turns(_fetch(svc, ctx, req, scope), req.max_wait_ms)


def _fetch(svc: Services, ctx: RequestContext, req: FetchRequest, scope: Scope) -> Fetch:
    fetch = Fetch(svc, ctx, req, scope, reader_for(svc, ctx, req, scope))
    if svc.quotas.limits_requests:
        if (req.replica_state.replica_id if ctx.api_version >= 15 else req.replica_id) >= 0:
            ctx.exempt()
        fetch.limit(ctx.fetch_bytes_max)
    return fetch


async def handle_old(svc: Services, ctx: RequestContext, req: FetchRequest) -> FetchResponse:
    """Versions 0-3: read and wait as in later versions, then convert."""
    if req.replica_id >= 0:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "followers must speak version 4 at least")
    waiting = Waiting(ctx)
    scope = await scope_in_turns(svc, ctx, req)
    reader = ConvertingReader(ctx.api_version)
    fetch = Fetch(svc, waiting, req, scope, reader)
    fetch.limit(ctx.fetch_bytes_max)
    if len(fetch.targets) > AT_ONCE:
        started: object = await fetch_in_turns(fetch, req.max_wait_ms)
    else:
        started = fetch.start(req.max_wait_ms)
    response = await waiting.wait() if started is PENDING else started
    if not isinstance(response, FetchResponse):
        return FetchResponse()  # not sent
    await reader.convert(ctx, fetch.max_bytes)
    return response


def _on_error(req: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """Before v7 there is no error of the whole answer: every partition carries it."""
    if version >= 7:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=requested.partition, error_code=code, high_watermark=-1, records=b"")
                    for requested in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(
    ApiKey.FETCH,
    (0, 18),
    handle,
    access=may_fetch,
    old=Old(3, handle_old),
    on_error=_on_error,
    learn=learn,
    round_bytes=LARGE_FRAME_BYTES,
)
