"""CreateTopics (key 19, versions 0-7): create topics, each for itself.

Behaviour: partitions and replicas by count, or by a manual assignment, with settings. Every topic succeeds or fails by
itself; `barnabas.replication.planning.topics` lists the errors. The answer comes when all of them have leaders and this
broker knows it, or after `timeout_ms` with REQUEST_TIMED_OUT (the creation continues; immediately if it is 0 or less).
A duplicate name, and `__cluster_metadata`, are rejected with INVALID_REQUEST. `validate_only` creates nothing.

Versions:

- 1: `validate_only` and messages
- 4: counts of -1 for the broker's defaults (taken in all versions)
- 5: flexible, answers with partitions, replication factor and all settings of the topic (KIP-525)
- 7: with the topic id (zero for `validate_only`, since none was given)

A broker that is not the controller answers NOT_CONTROLLER.

Not done: creation policies.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import CreateTopicsRequest, CreateTopicsResponse
from barnabas.replication import NewTopic, TopicDefaults, TopicRequest, check_total, is_prohibited
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.describe import topic_entries
from barnabas.server.requests.access import TOPIC, AccessCheck, Op, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Result = CreateTopicsResponse.CreatableTopicResult
_Config = CreateTopicsResponse.CreatableTopicConfigs

_STRICT_FROM = 6
"""From this version on THROTTLING_QUOTA_EXCEEDED is an answer (KIP-599); before, all is done, and the client waits."""


async def handle(svc: Services, ctx: RequestContext, req: CreateTopicsRequest) -> CreateTopicsResponse:
    charge = partial(ctx.charge, strict=ctx.api_version >= _STRICT_FROM)
    config = svc.config
    defaults = TopicDefaults(config.get_int("num.partitions"), config.get_int("default.replication.factor"))
    results, requests, error = await svc.turns.run(_sorted_out(req, defaults))
    if error is None:
        try:
            outcomes = await svc.topics.create_topics(
                requests,
                timeout_ms=req.timeout_ms,
                validate_only=req.validate_only,
                charge=charge,
            )
        except KafkaError as refusal:
            error = refusal
    if error is not None:
        return await svc.turns.run(_all_refused(results, requests, error))
    # many topics of one request have the same settings, which take some 0.2 ms to put together
    shown: dict[frozenset[tuple[str, str]], list[CreateTopicsResponse.CreatableTopicConfigs]] = {}
    for number, (name, outcome) in enumerate(outcomes.items()):
        if number % 500 == 499:
            await trio.lowlevel.checkpoint()
        if outcome.error is not None:
            results[name] = _failed(name, outcome.error)
        elif outcome.new is not None:
            key = frozenset(outcome.new.config.items())
            if key not in shown:
                shown[key] = _settings(config, outcome.new)
            results[name] = _created(outcome.new, shown[key], validate_only=req.validate_only)
    return CreateTopicsResponse(topics=list(results.values()))


def _sorted_out(
    req: CreateTopicsRequest, defaults: TopicDefaults
) -> Steps[tuple[dict[str, _Result], list[TopicRequest], KafkaError | None]]:
    """What to answer so far, what to create, and why nothing of it can be."""
    named = Counter(topic.name for topic in req.topics)
    results: dict[str, CreateTopicsResponse.CreatableTopicResult] = {}
    requests: list[TopicRequest] = []
    for topic in req.topics:
        yield 2 + sum(1 + len(given.broker_ids) // 8 for given in topic.assignments)
        if is_prohibited(topic.name):
            message = f"Creation of internal topic {topic.name} is prohibited."
            results[topic.name] = _failed(topic.name, KafkaError(ErrorCode.INVALID_REQUEST, message))
        elif named[topic.name] > 1:
            results[topic.name] = _failed(topic.name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        else:
            results[topic.name] = _Result(name=topic.name, error_message=None)
            requests.append(_request(topic))
    try:
        check_total(requests, defaults)
    except KafkaError as error:
        return results, requests, error
    return results, requests, None


def _all_refused(
    results: dict[str, _Result], requests: list[TopicRequest], error: KafkaError
) -> Steps[CreateTopicsResponse]:
    for request in requests:
        results[request.name] = _failed(request.name, error)
        yield 1
    return CreateTopicsResponse(topics=list(results.values()))


def _request(topic: CreateTopicsRequest.CreatableTopic) -> TopicRequest:
    return TopicRequest(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((given.partition_index, tuple(given.broker_ids)) for given in topic.assignments),
        tuple((setting.name, setting.value) for setting in topic.configs),
    )


def _created(
    new: NewTopic, settings: list[CreateTopicsResponse.CreatableTopicConfigs], *, validate_only: bool
) -> CreateTopicsResponse.CreatableTopicResult:
    result = _Result(
        name=new.name,
        error_message=None,
        num_partitions=len(new.assignments),
        replication_factor=new.replication_factor,
        configs=settings,
    )
    if not validate_only:
        result.topic_id = new.topic_id
    return result


def _settings(config: BrokerConfig, new: NewTopic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        _Config(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in topic_entries(config, new.config)
    ]


def _failed(name: str, error: KafkaError) -> CreateTopicsResponse.CreatableTopicResult:
    return _Result(name=name, error_code=error.code, error_message=error.message, configs=[])


def _refusal(req: CreateTopicsRequest, code: ErrorCode, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(topic.name, KafkaError(code)) for topic in req.topics])


def _configs(check: AccessCheck, response: CreateTopicsResponse) -> Steps[None]:
    """Leave out the settings of a created topic if the caller may not describe them."""
    for result in response.topics:
        if not result.error_code and not check.would_allow(Op.DESCRIBE_CONFIGS, TOPIC, result.name):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.num_partitions = result.replication_factor = -1
            result.configs = []
        yield 1


API = Api(
    ApiKey.CREATE_TOPICS,
    (0, 7),
    handle,
    access=both(for_each("topics", "topics", Op.CREATE, unless=Op.CREATE, twice_is_wrong=True), amended(_configs)),
    on_error=_refusal,
)
