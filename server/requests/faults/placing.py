"""Requests of which some items are to fail: the request without them, and their errors put into the answer.

The errors are those that the API has for a request that fails as a whole (`Route.error_response`), made for a request
of just these items: so they stand where Apache Kafka puts them, in every version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.server.requests.faults.names import Listed, Partitioned

Refuse = Callable[[Any, ErrorCode], Any]
"""Makes the answer to a request that failed as a whole."""


class Placed(NamedTuple):
    """rest: what is left of the request; None: nothing is. amend: puts the errors into the answer to the rest, or, of
    None, makes an answer.
    """

    rest: Any
    amend: Callable[[Any], Any]


def placed(shape: Partitioned | Listed, request: Any, errors: Mapping[int, ErrorCode], refuse: Refuse) -> Placed:
    """errors: by the number of the item (`names.items_of`), one at least."""
    if isinstance(shape, Listed):
        return _listed(shape, request, errors, refuse)
    return _whole(shape, request, errors, refuse) if shape.is_whole else _partitioned(shape, request, errors, refuse)


def _listed(shape: Listed, request: Any, errors: Mapping[int, ErrorCode], refuse: Refuse) -> Placed:
    given = list(getattr(request, shape.entries))
    failed = [_answers(shape, request, given, errors, code, refuse) for code in dict.fromkeys(errors.values())]
    rest = _with(request, shape.entries, [entry for number, entry in enumerate(given) if number not in errors])

    def amend(response: Any) -> Any:
        if response is None:
            response, others = failed[0], failed[1:]
        else:
            others = failed
        for other in others:
            getattr(response, shape.answers).extend(getattr(other, shape.answers))
        return response

    return Placed(rest if len(errors) < len(given) else None, amend)


def _answers(
    shape: Listed, request: Any, given: list[Any], errors: Mapping[int, ErrorCode], code: ErrorCode, refuse: Refuse
) -> Any:
    """The answer for the entries that have this error."""
    entries = [entry for number, entry in enumerate(given) if errors.get(number) is code]
    return refuse(_with(request, shape.entries, entries), code)


def _partitioned(shape: Partitioned, request: Any, errors: Mapping[int, ErrorCode], refuse: Refuse) -> Placed:
    rest, left = _picked(shape, request, lambda number: number not in errors)
    failed = []
    for code in dict.fromkeys(errors.values()):
        numbers = {number for number, other in errors.items() if other is code}
        some, _ = _picked(shape, request, numbers.__contains__)
        failed.append(refuse(some, code))

    def amend(response: Any) -> Any:
        if response is None:
            response, others = failed[0], failed[1:]
        else:
            others = failed
        topics = getattr(response, shape.answers)
        by_name = {_key(topic, shape.name): topic for topic in topics}
        for other in others:
            for topic in getattr(other, shape.answers):
                known = by_name.get(_key(topic, shape.name))
                if known is None:
                    by_name[_key(topic, shape.name)] = topic
                    topics.append(topic)
                else:
                    getattr(known, shape.answer_partitions).extend(getattr(topic, shape.answer_partitions))
        return response

    return Placed(rest if left else None, amend)


def _key(topic: Any, name: str) -> tuple[str | None, bytes]:
    return getattr(topic, name), getattr(topic, "topic_id", ZERO_UUID)


def _picked(shape: Partitioned, request: Any, wanted: Callable[[int], bool]) -> tuple[Any, int]:
    """The request with the wanted partitions only, and how many these are. Topics without any are left out."""
    number, count = 0, 0
    topics = []
    for topic in getattr(request, shape.topics):
        kept = []
        for partition in getattr(topic, shape.partitions):
            if wanted(number):
                kept.append(partition)
            number += 1
        if kept:
            topics.append(_with(topic, shape.partitions, kept))
            count += len(kept)
    return _with(request, shape.topics, topics), count


def _whole(shape: Partitioned, request: Any, errors: Mapping[int, ErrorCode], refuse: Refuse) -> Placed:
    """One failed partition fails all: the others were not attempted."""
    response = refuse(request, ErrorCode.OPERATION_NOT_ATTEMPTED)
    number = 0
    for topic in getattr(response, shape.answers):
        for answer in getattr(topic, shape.answer_partitions):
            if number in errors:
                answer.partition_error_code = errors[number]
            number += 1
    return Placed(None, lambda _: response)


def _with(message: Any, field: str, value: Any) -> Any:
    changed = copy(message)
    setattr(changed, field, value)
    return changed
