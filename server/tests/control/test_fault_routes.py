"""Faults over the control channel: made, counted, ended; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.apis import APIS
from barnabas.server.control.fault_routes import fault_of, spelled
from barnabas.server.control.fields import Fields, WrongField
from barnabas.server.requests.faults.rules import Act, Fault
from barnabas.server.testing import connected
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic
from barnabas.server.tests.control.kit import controlled_broker

SERVED = [api.key for api in APIS if api.is_served(clustered=False, telemetry=False)]


async def test_a_fault_from_its_beginning_to_its_end() -> None:
    async with controlled_broker() as channel, connected(channel.broker) as client:
        await topic(channel.broker)
        made = await channel.ask(
            "POST", "/v1/faults", {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
        )
        assert made.status == 200
        assert made.value == {
            "id": 1,
            "seen": 0,
            "hits": 0,
            "over": False,
            "api": ["Produce"],
            "topic": "t",
            "partition": None,
            "group": None,
            "transactional_id": None,
            "client_id": None,
            "does": "error",
            "error": "NOT_LEADER_OR_FOLLOWER",
            "delay_ms": 0,
            "nth": 1,
            "times": 2,
        }
        codes = [only(await client.ask(request(batch(b"a")), 9)).error_code for _ in range(3)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [0]
        now = await channel.ask("GET", "/v1/faults/1")
        assert (now.value["seen"], now.value["hits"], now.value["over"]) == (2, 2, True)
        assert (await channel.ask("GET", "/v1/faults")).value == {"faults": [now.value]}
        assert (await channel.ask("DELETE", "/v1/faults/1")).value == now.value
        gone = await channel.ask("GET", "/v1/faults/1")
        assert (gone.status, gone.value) == (404, {"error": "there is no fault '1'"})
        for _ in range(2):
            await channel.ask("POST", "/v1/faults", {"drop": "answer"})
        ended = await channel.ask("DELETE", "/v1/faults")
        assert [fault["id"] for fault in ended.value["faults"]] == [2, 3]
        assert (await channel.ask("GET", "/v1/faults")).value == {"faults": []}


def parsed(body: dict[str, Any]) -> Fault:
    return fault_of(Fields(body), SERVED)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            {"api": "produce", "error": "not_coordinator"},
            {"act": Act.ERROR, "error": ErrorCode.NOT_COORDINATOR},
        ),
        ({"api": ["PRODUCE"], "delay_ms": 5, "nth": 2}, {"delay_ms": 5, "nth": 2}),
        ({"api": "Produce", "half": True, "client_id": "c"}, {"act": Act.HALF, "client_id": "c"}),
        ({"api": "Produce", "drop": "request", "transactional_id": "x"}, {"act": Act.DROP, "transactional_id": "x"}),
    ],
)
def test_what_a_fault_can_be(body: dict[str, Any], fault: dict[str, Any]) -> None:
    assert parsed(body) == Fault(frozenset((ApiKey.PRODUCE,)), **fault)


def test_apis_by_their_names() -> None:
    assert parsed({"api": ["JoinGroup", "join_group", "JOIN_GROUP"], "half": True}).apis == {ApiKey.JOIN_GROUP}
    assert parsed({"half": True}).apis == frozenset()
    assert parsed({"api": "Metadata", "stale": True, "topic": "t"}).act is Act.STALE
    for key in SERVED:
        assert parsed({"api": spelled(key), "half": True}).apis == {key}


ONE_OF = "a fault has one of error, stale, drop and half, and perhaps delay_ms, or delay_ms alone"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, ONE_OF),
        ({"error": "NOT_COORDINATOR", "half": True}, ONE_OF),
        ({"api": "Produced", "half": True}, "api must be one that this broker serves, such as Produce, not 'Produced'"),
        ({"api": "LeaderAndIsr", "half": True}, "api must be one that this broker serves"),
        ({"api": 7, "half": True}, "api must be"),
        (
            {"error": "NOT"},
            "error must be the name of an error, such as NOT_LEADER_OR_FOLLOWER, not 'NOT'",
        ),
        ({"error": "NONE"}, "error must be the name of an error"),
        ({"drop": "it"}, 'drop must be "request" or "answer", not "it"'),
        ({"stale": True}, "stale is for the api Metadata or DescribeTopicPartitions"),
        ({"stale": True, "api": "Fetch"}, "stale is for the api Metadata or DescribeTopicPartitions"),
        ({"half": True, "partition": 0}, "partition needs a topic"),
        ({"half": True, "api": "Heartbeat", "topic": "t"}, "a request of Heartbeat names no topic that a fault could"),
        ({"half": True, "api": "Fetch", "group": "g"}, "a request of Fetch names no group that a fault could look for"),
        ({"half": True, "times": 0}, "times must be a whole number from 1"),
        ({"half": True, "nth": 0}, "nth must be a whole number from 1"),
        ({"delay_ms": 1e12}, "delay_ms must be a whole number from 1"),
        ({"half": True, "tpoic": "t"}, 'there is no field "tpoic"; there are: api, topic, partition'),
    ],
)
def test_what_it_cannot_be(body: dict[str, Any], error: str) -> None:
    with pytest.raises(WrongField) as caught:
        parsed(body)
    assert str(caught.value).startswith(error)
