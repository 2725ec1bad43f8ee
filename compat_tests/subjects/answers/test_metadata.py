"""Metadata of a topic that is about to be created: what the first answer says, in every version, and that the topic
comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas.kproto import ZERO_UUID, ApiKey
from compat_tests.harness.brokers import Broker
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.access.connection import Connection, request

pytestmark = pytest.mark.slow

NONE, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REQUEST, UNKNOWN_ID = 0, 3, 17, 42, 100
MISNAMED = ("two words", "x" * 250, "", "..", "a/b")
NEWEST, WITH_IDS, WITH_A_CHOICE, NULL_FROM = 13, 12, 4, 10
_NOT_ASKED = -(1 << 31)


@pytest.fixture
def asked(broker: Broker) -> Iterator[Connection]:
    with closing(Connection(broker.address)) as connection:
        yield connection


def told(connection: Connection, version: int, topics: list[dict[str, Any]], **values: Any) -> dict[Any, Any]:
    """By name, or id where there is none: what is told of each."""
    answer = connection.ask(request(ApiKey.METADATA, version, {"topics": topics, **values}), version)
    found = {}
    for each in answer.topics:
        assert each.topic_authorized_operations == _NOT_ASKED
        key = each.name if each.name is not None else each.topic_id
        found[key] = each.error_code, each.topic_id, each.is_internal, len(each.partitions)
    assert len(found) == len(answer.topics)
    return found


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_the_first_answer(asked: Connection, unique: Callable[..., str], version: int) -> None:
    """It does not wait, gives no id, and names each topic once."""
    name = unique()
    named = [{"name": each} for each in (name, name, *MISNAMED)]
    unknown = {name: (UNKNOWN_TOPIC, ZERO_UUID, False, 0)}
    wrong = dict.fromkeys(MISNAMED, (INVALID_TOPIC, ZERO_UUID, False, 0))
    if version >= WITH_A_CHOICE:
        for _ in range(2):
            assert told(asked, version, named, allow_auto_topic_creation=False) == unknown | wrong
    assert told(asked, version, named) == unknown | wrong
    wait_until(lambda: told(asked, version, named)[name][0] == NONE, "the topic")
    code, topic_id, is_internal, partitions = told(asked, version, named)[name]
    assert (code, is_internal, partitions) == (NONE, False, 1)
    assert (topic_id != ZERO_UUID) == (version >= NULL_FROM)


@pytest.mark.parametrize("version", range(NULL_FROM, NEWEST + 1))
def test_ids(asked: Connection, unique: Callable[..., str], version: int) -> None:
    """An id beside names: it is about ids alone, and nothing is created."""
    unknown, name = b"of no topic".ljust(16), unique()
    topics: list[dict[str, Any]] = [{"topic_id": unknown, "name": None}, {"name": name}]
    if version >= WITH_IDS:
        assert told(asked, version, topics) == {unknown: (UNKNOWN_ID, unknown, False, 0)}
        assert told(asked, version, [{"topic_id": unknown, "name": name}]) == {unknown: (UNKNOWN_ID, unknown, False, 0)}
    else:
        answer = asked.ask(request(ApiKey.METADATA, version, {"topics": topics}), version)
        assert {each.error_code for each in answer.topics} == {INVALID_REQUEST}
    assert told(asked, version, [{"name": name}], allow_auto_topic_creation=False)[name][0] == UNKNOWN_TOPIC
