"""CreatePartitions (key 37, versions 0-3): give topics more partitions (KIP-195).

Behaviour: `count` is the number a topic shall have in the end; fewer or as many as it has give INVALID_PARTITIONS. New
partitions are placed as if they had been there from the start, or as the request says, replicas for each new one
(INVALID_REPLICA_ASSIGNMENT if those do not fit). A topic that stands twice is refused with INVALID_REQUEST. The answer
comes when all have leaders, or after `timeout_ms` with REQUEST_TIMED_OUT. `validate_only` adds nothing.

Versions:

- 2: flexible

A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.server.requests.access import Op, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

_Result = CreatePartitionsResponse.CreatePartitionsTopicResult

_STRICT_FROM = 3
"""From this version on THROTTLING_QUOTA_EXCEEDED is an answer (KIP-599); before, all is done, and the client waits."""


async def handle(svc: Services, ctx: RequestContext, req: CreatePartitionsRequest) -> CreatePartitionsResponse:
    charge = partial(ctx.charge, strict=ctx.api_version >= _STRICT_FROM)
    named = Counter(topic.name for topic in req.topics)
    results: dict[str, CreatePartitionsResponse.CreatePartitionsTopicResult] = {}
    requests = []
    for number, topic in enumerate(req.topics, 1):
        if number % 2000 == 0:
            await trio.lowlevel.checkpoint()
        results[topic.name] = _Result(name=topic.name)
        if named[topic.name] > 1:
            results[topic.name] = _failed(
                topic.name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            )
        else:
            manual = None if topic.assignments is None else [given.broker_ids for given in topic.assignments]
            requests.append((topic.name, topic.count, manual))
    try:
        outcomes = await svc.topics.create_partitions(
            requests,
            timeout_ms=req.timeout_ms,
            validate_only=req.validate_only,
            charge=charge,
        )
    except KafkaError as error:
        results.update((name, _failed(name, error)) for name, _, _ in requests)
        return CreatePartitionsResponse(results=list(results.values()))
    for number, (name, outcome) in enumerate(outcomes.items(), 1):
        if number % 2000 == 0:
            await trio.lowlevel.checkpoint()
        if outcome.error is not None:
            results[name] = _failed(name, outcome.error)
    return CreatePartitionsResponse(results=list(results.values()))


def _failed(name: str, error: KafkaError) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    return _Result(name=name, error_code=error.code, error_message=error.message)


def _refusal(req: CreatePartitionsRequest, code: ErrorCode, version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_failed(topic.name, KafkaError(code)) for topic in req.topics])


API = Api(
    ApiKey.CREATE_PARTITIONS,
    (0, 3),
    handle,
    access=for_each("topics", "results", Op.ALTER, twice_is_wrong=True),
    on_error=_refusal,
)
