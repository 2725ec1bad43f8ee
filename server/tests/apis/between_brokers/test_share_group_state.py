"""Requests to the share coordinator over the wire format: each version, what has no answer, large ones, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator.share import ShareKey, StateBatch, Stored, Summary, WriteState
from barnabas.kproto import ApiKey, ErrorCode, decode, encode, request_class, response_class
from barnabas.server.coordinators.share.state_wire import WIRES, Delete, Initialize, Read, Summarize, wire_of
from barnabas.server.requests.portions import AT_ONCE
from barnabas.server.tests.coordinators.share.persister_kit import APIS, PersisterRig, handled, persister_rig

E = ErrorCode
ASKED = (
    Initialize(4, 17),
    Read(6),
    WriteState(4, 6, 17, 3, (StateBatch(17, 20, 2, 1), StateBatch(22, 22, 0, 3))),
    Delete(),
    Summarize(6),
)


async def ask(r: PersisterRig, asked: Any, *keys: ShareKey, version: int | None = None) -> dict[ShareKey, Any]:
    wire = wire_of(asked)
    version = wire.newest if version is None else version
    request = wire.to_request(keys[0].group_id, dict.fromkeys(keys, asked))
    there: Any = decode(request_class(wire.key), version, encode(request, version))
    answer = await handled(r.other.svc, APIS[wire.key], there, version)
    back = decode(response_class(wire.key), version, encode(answer, version))
    return wire.from_response(keys[0].group_id, back)


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked).__name__)
def test_what_is_asked_arrives(asked: Any) -> None:
    wire = wire_of(asked)
    keys = [ShareKey("g", bytes([1]) * 16, 0), ShareKey("g", bytes([1]) * 16, 7), ShareKey("g", bytes([2]) * 16, 0)]
    for version in range(wire.newest + 1):
        request = wire.to_request("g", dict.fromkeys(keys, asked))
        there: Any = decode(request_class(wire.key), version, encode(request, version))
        expected = asked
        if version == 0 and isinstance(asked, WriteState):
            expected = asked._replace(delivery_complete_count=-1)
        assert list(wire.from_request(there)) == [(key, expected) for key in keys]


def test_all_versions_are_known() -> None:
    assert {wire.key for wire in WIRES.values()} == set(APIS)
    for wire in WIRES.values():
        assert APIS[wire.key].versions == (0, wire.newest)


async def test_each_partition_has_its_own_error(tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        good, unknown, negative = r.key(), r.key(partition=3), r.key(partition=-1)
        told = await ask(r, Initialize(4, 17), good, unknown, negative)
        assert {key: answer.code for key, answer in told.items()} == {
            good: E.NONE,
            unknown: E.UNKNOWN_TOPIC_OR_PARTITION,
            negative: E.INVALID_REQUEST,
        }
        assert told[negative].message == "There is no partition -1."
        assert (await ask(r, Summarize(), good, unknown))[unknown] == Summary(E.NONE)
        assert (await ask(r, Delete(), good, negative))[negative].code == E.INVALID_REQUEST


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked).__name__)
async def test_who_is_no_coordinator(asked: Any, tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        assert {told.code for told in (await ask(r, asked, r.key(), r.key(partition=1))).values()} == {
            E.NOT_COORDINATOR
        }


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked).__name__)
async def test_nothing_is_asked(asked: Any, tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        wire = wire_of(asked)
        for request in (wire.to_request("g", {}), wire.to_request("", {r.key(): asked})):
            answer = await handled(r.other.svc, APIS[wire.key], request, 0)
            assert answer.results == []


async def test_a_large_request(tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.other.topic("large", 2 * AT_ONCE + 100)
        r.topic(1)
        topic_id = r.other.image.topics["large"].topic_id
        keys = [ShareKey("g", topic_id, number) for number in range(2 * AT_ONCE + 101)]
        told = await ask(r, Initialize(4, 17), *keys)
        assert list(told) == keys
        assert told.pop(keys[-1]).code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert set(told.values()) == {Stored(E.NONE)}


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: type(asked).__name__)
def test_a_request_that_fails_as_a_whole(asked: Any) -> None:
    wire = wire_of(asked)
    keys = [ShareKey("g", bytes([1]) * 16, 0), ShareKey("g", bytes([2]) * 16, 7)]
    on_error = APIS[wire.key].on_error
    assert on_error is not None
    answer = on_error(wire.to_request("g", dict.fromkeys(keys, asked)), E.CLUSTER_AUTHORIZATION_FAILED, wire.newest)
    told = wire.from_response("g", answer)
    assert {key: each.code for key, each in told.items()} == dict.fromkeys(keys, E.CLUSTER_AUTHORIZATION_FAILED)


def test_keys() -> None:
    assert sorted(APIS) == [
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ]
