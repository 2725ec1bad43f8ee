"""DeleteTopics (key 20, versions 0-6): delete topics, by name or by id.

Behaviour: the answer comes when nothing is left of the topics but data directories, renamed at once and removed later,
and their names can be had again; or after `timeout_ms` with REQUEST_TIMED_OUT while it continues. Unknown names
give UNKNOWN_TOPIC_OR_PARTITION, unknown ids UNKNOWN_TOPIC_ID; a topic that is named twice, or with name and id at once,
INVALID_REQUEST. With `delete.topic.enable=false` nothing is deleted: TOPIC_DELETION_DISABLED (INVALID_REQUEST before
version 3).

Versions:

- 4: flexible
- 5: messages
- 6: ids, and answers hold both name and id

A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import trio

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.replication import Image
from barnabas.server.requests.access import CLUSTER, TOPIC, AccessCheck, Admitted, Op, Outcome, merge, split
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Result = DeleteTopicsResponse.DeletableTopicResult

_Requested = tuple[str | None, bytes]


_UNKNOWN_ID = "This server does not host this topic ID."

_STRICT_FROM = 5
"""From this version on THROTTLING_QUOTA_EXCEEDED is an answer (KIP-599); before, all is done, and the client waits."""


async def handle(svc: Services, ctx: RequestContext, req: DeleteTopicsRequest) -> DeleteTopicsResponse:
    charge = partial(ctx.charge, strict=ctx.api_version >= _STRICT_FROM)
    requested = _requested(req, ctx.api_version)
    if not svc.config.get_bool("delete.topic.enable"):
        code = ErrorCode.INVALID_REQUEST if ctx.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return _all_failed(requested, KafkaError(code, "Topic deletion is disabled."))
    image = svc.image
    results: dict[_Requested, DeleteTopicsResponse.DeletableTopicResult] = {}
    doomed: dict[_Requested, str] = {}
    times = Counter(_resolved(image, one) for one in requested)
    for number, one in enumerate(requested, 1):
        if number % 2000 == 0:
            await trio.lowlevel.checkpoint()
        name = _resolved(image, one)
        error = _fault(one, name, twice=times[name] > 1)
        if error is not None:
            results[one] = _failed(one, error)
        elif name is not None:
            topic = image.topics.get(name)
            results[one] = _Result(name=name, topic_id=topic.topic_id if topic else one[1])
            doomed[one] = name
    try:
        outcomes = await svc.topics.delete_topics(
            doomed.values(),
            timeout_ms=req.timeout_ms,
            charge=charge,
        )
    except KafkaError as error:
        results.update((one, _failed(one, error)) for one in doomed)
        return DeleteTopicsResponse(responses=list(results.values()))
    for number, (one, name) in enumerate(doomed.items(), 1):
        if number % 2000 == 0:
            await trio.lowlevel.checkpoint()
        failure = outcomes[name].error
        if failure is not None:
            results[one] = _failed((name, results[one].topic_id), failure)
    return DeleteTopicsResponse(responses=list(results.values()))


def _requested(req: DeleteTopicsRequest, version: int) -> list[_Requested]:
    if version >= 6:
        return [(topic.name, topic.topic_id) for topic in req.topics]
    return [(name, ZERO_UUID) for name in req.topic_names]


def _resolved(image: Image, requested: _Requested) -> str | None:
    """The topic's name, None for an unknown id."""
    name, topic_id = requested
    if name is not None:
        return name
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _fault(requested: _Requested, resolved: str | None, *, twice: bool) -> KafkaError | None:
    name, topic_id = requested
    if name is not None and topic_id != ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if resolved is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
    if twice:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    return None


def _failed(requested: _Requested, error: KafkaError) -> DeleteTopicsResponse.DeletableTopicResult:
    return _Result(name=requested[0], topic_id=requested[1], error_code=error.code, error_message=error.message)


def _all_failed(requested: list[_Requested], error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_failed(one, error) for one in requested])


def _refusal(req: DeleteTopicsRequest, code: ErrorCode, version: int) -> DeleteTopicsResponse:
    return _all_failed(_requested(req, version), KafkaError(code))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """DELETE on the topic, or on the cluster; the name behind an id is shown only to a caller that may describe the
    topic. The handler rejects malformed requests.
    """
    req: DeleteTopicsRequest = check.request
    if not check.services.config.get_bool("delete.topic.enable") or check.would_allow(Op.DELETE, CLUSTER):
        return Admitted(req)
    entries = "topics" if check.version >= 6 else "topic_names"
    keys = _requested(req, check.version)
    times = Counter(keys)
    refusals = []
    denied = set()
    for key in keys:
        yield 1
        name, topic_id = key
        resolved = _resolved(check.services.image, key)
        if times[key] > 1 or (name is None) == (topic_id == ZERO_UUID):
            continue
        if resolved is None:
            denied.add(key)
            refusals.append(_failed(key, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)))
            continue
        is_known = check.allows(Op.DESCRIBE, TOPIC, resolved)
        if not is_known or not check.allows(Op.DELETE, TOPIC, resolved):
            denied.add(key)
            shown = resolved if name is None and is_known else name
            refusals.append(_Result(name=shown, topic_id=topic_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if not denied:
        return Admitted(req)
    kept, _ = split(req, entries, keys, denied)

    def amend(response: DeleteTopicsResponse) -> Steps[None]:
        merge(response, "responses", refusals, keys, "name")
        yield len(keys) // 8

    return Admitted(kept, amend)


API = Api(ApiKey.DELETE_TOPICS, (0, 6), handle, access=_access, on_error=_refusal)
