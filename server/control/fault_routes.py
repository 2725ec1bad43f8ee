"""Routes of faults: what is to go wrong with the requests of clients.

    POST   /v1/faults         {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    GET    /v1/faults         all, with how often each has struck
    GET    /v1/faults/{id}    one
    DELETE /v1/faults/{id}    ends it; answers with its last counts
    DELETE /v1/faults         ends all

Which requests: `api` (a name or a list of names, as Apache Kafka writes them; left out: all that clients ask),
`topic`, `partition`, `group`, `transactional_id`, `client_id`. Which of these: `nth` (from the nth on), `times`. What
happens: `error` (a name), `stale`, `drop` ("request": it is not handled; "answer": it is, and the answer is lost) or
`half`; and `delay_ms`, beside one of them or alone.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.control.controlled import Controlled
from barnabas.server.control.fields import Fields, WrongField
from barnabas.server.control.routing import Call, Json, Refusal, Route
from barnabas.server.requests.faults.injector import STALE_APIS
from barnabas.server.requests.faults.names import kinds_of
from barnabas.server.requests.faults.rules import RULES_MAX, Act, Fault, Rule, TooManyRules

DELAY_MS_MAX: Final = 3_600_000
_DROPS: Final = {"request": Act.DROP, "answer": Act.DROP_ANSWER}
_EVERY_PARTITION_MAX: Final = 2**31 - 1


async def add(controlled: Controlled, call: Call) -> Json:
    fault = fault_of(call.fields, [served.key for served in controlled.broker.services.served])
    try:
        return _described(controlled.broker.faults.add(fault))
    except TooManyRules:
        raise Refusal(f"there are {RULES_MAX} faults, more are not possible: end some first", 409) from None


async def every(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    return {"faults": [_described(rule) for rule in controlled.broker.faults.rules]}


async def one(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    return _described(_found(controlled.broker.faults.rules.find(_number(call)), call))


async def remove(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    return _described(_found(controlled.broker.faults.remove(_number(call)), call))


async def clear(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    faults = controlled.broker.faults
    ended = [_described(rule) for rule in faults.rules]
    faults.clear()
    return {"faults": ended}


def fault_of(fields: Fields, served: list[ApiKey]) -> Fault:
    """The fault that a body describes. Raises WrongField."""
    names = fields.take("api")
    listed = names if isinstance(names, list) else [] if names is None else [names]
    apis = frozenset(_api(name, served) for name in listed)
    topic, partition = fields.text("topic"), fields.integer("partition", most=_EVERY_PARTITION_MAX)
    group, transactional_id = fields.text("group"), fields.text("transactional_id")
    client_id = fields.text("client_id")
    error, stale, half = fields.text("error"), fields.flag("stale"), fields.flag("half")
    drop = fields.text("drop")
    delay_ms = fields.integer("delay_ms", least=1, most=DELAY_MS_MAX)
    nth = fields.integer("nth", least=1)
    times = fields.integer("times", least=1)
    fields.end()
    if drop is not None and drop not in _DROPS:
        raise WrongField(f'drop must be "request" or "answer", not "{drop[:40]}"')
    acts = [
        *([Act.ERROR] if error is not None else []),
        *([Act.STALE] if stale else []),
        *([_DROPS[drop]] if drop is not None else []),
        *([Act.HALF] if half else []),
    ]
    if len(acts) > 1 or not (acts or delay_ms):
        raise WrongField("a fault has one of error, stale, drop and half, and perhaps delay_ms, or delay_ms alone")
    if stale and not (apis and apis <= STALE_APIS):
        raise WrongField("stale is for the api Metadata or DescribeTopicPartitions")
    if partition is not None and topic is None:
        raise WrongField("partition needs a topic")
    wanted = {"topic": topic, "partition": partition, "group": group, "transactional_id": transactional_id}
    for api in apis:
        for kind, value in wanted.items():
            if value is not None and kind not in kinds_of(api):
                raise WrongField(f"a request of {spelled(api)} names no {kind} that a fault could look for")
    return Fault(
        apis,
        topic,
        partition,
        group,
        transactional_id,
        client_id,
        acts[0] if acts else Act.NOTHING,
        ErrorCode.NONE if error is None else _error(error),
        delay_ms or 0,
        nth or 1,
        times,
    )


def _api(name: Any, served: list[ApiKey]) -> ApiKey:
    known = {spelled(key).lower(): key for key in served}
    key = known.get(str(name).replace("_", "").lower())
    if key is None or not isinstance(name, str):
        raise WrongField(f"api must be one that this broker serves, such as Produce, not {str(name)[:40]!r}")
    return key


def spelled(key: ApiKey) -> str:
    """As Apache Kafka writes the name of an API: `JoinGroup`."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def _error(name: str) -> ErrorCode:
    code = ErrorCode.__members__.get(name.upper())
    if code is None or code is ErrorCode.NONE:
        raise WrongField(f"error must be the name of an error, such as NOT_LEADER_OR_FOLLOWER, not {name[:40]!r}")
    return code


def _number(call: Call) -> int:
    text = call.arguments["id"]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _found(rule: Rule | None, call: Call) -> Rule:
    if rule is None:
        raise Refusal(f"there is no fault {call.arguments['id'][:40]!r}", 404)
    return rule


def _described(rule: Rule) -> Json:
    fault = rule.fault
    said: dict[str, Json] = {"id": rule.number, "seen": rule.seen, "hits": rule.hits, "over": rule.is_over}
    said["api"] = sorted(spelled(api) for api in fault.apis) or None
    for name in ("topic", "partition", "group", "transactional_id", "client_id"):
        said[name] = getattr(fault, name)
    said["does"] = fault.act.value
    said["error"] = fault.error.name if fault.act is Act.ERROR else None
    said["delay_ms"], said["nth"], said["times"] = fault.delay_ms, fault.nth, fault.times
    return said


ROUTES: Final = (
    Route("POST", "/v1/faults", add, "makes requests fail"),
    Route("GET", "/v1/faults", every, "lists the faults, and how often each has struck"),
    Route("DELETE", "/v1/faults", clear, "ends all faults"),
    Route("GET", "/v1/faults/{id}", one, "tells how often a fault has struck"),
    Route("DELETE", "/v1/faults/{id}", remove, "ends a fault"),
)
