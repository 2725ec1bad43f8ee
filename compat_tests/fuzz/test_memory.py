"""What counts as memory that does not come back, and what is deleted before it is looked at."""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, decoder, encoder, request_class
from barnabas.kproto.frame import parse_request_header, response_frame
from barnabas.kproto.messages import (
    DeleteGroupsResponse,
    DeleteTopicsResponse,
    DescribeGroupsResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    MetadataResponse,
    ProduceResponse,
)
from barnabas.kproto.records import read_header
from compat_tests.fuzz.memory import AT_ONCE, Memory, all_compressions, tidied
from compat_tests.fuzz.test_watching import peer

MIB = 1 << 20


def test_a_fifth_above_the_start_is_grown() -> None:
    assert not Memory(50 * MIB, 100 * MIB, 60 * MIB).has_grown
    assert Memory(50 * MIB, 100 * MIB, 61 * MIB).has_grown


def test_what_a_restarted_broker_needs_as_well_is_state() -> None:
    assert not Memory(50 * MIB, 100 * MIB, 71 * MIB, 60 * MIB).has_grown
    assert Memory(50 * MIB, 100 * MIB, 73 * MIB, 60 * MIB).has_grown
    assert Memory(50 * MIB, 100 * MIB, 61 * MIB, 40 * MIB).has_grown
    assert "60 restarted" in str(Memory(50 * MIB, 100 * MIB, 71 * MIB, 60 * MIB))


def test_what_attackers_made_is_deleted_and_nothing_else() -> None:
    topics = ["t0", "honest-1", "load-of-the-cluster", "__consumer_offsets", *(f"x{i}" for i in range(AT_ONCE))]
    asked: list[Any] = []

    def groups(request: Any) -> Any:
        member = DescribeGroupsResponse.DescribedGroupMember(member_id="m")
        return DescribeGroupsResponse(
            groups=[
                DescribeGroupsResponse.DescribedGroup(group_id=name, members=[member] if name == "full" else [])
                for name in request.groups
            ]
        )

    def deleted(request: Any) -> Any:
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=68 if name == "newer" else 0)
                for name in request.groups_names
            ]
        )

    answers: dict[int, Any] = {
        ApiKey.METADATA: lambda _: MetadataResponse(
            topics=[MetadataResponse.MetadataResponseTopic(name=name) for name in topics]
        ),
        ApiKey.DELETE_TOPICS: lambda _: DeleteTopicsResponse(),
        ApiKey.LIST_GROUPS: lambda _: ListGroupsResponse(
            groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in ("full", "newer", "honest-1")]
        ),
        ApiKey.DESCRIBE_GROUPS: groups,
        ApiKey.LEAVE_GROUP: lambda _: LeaveGroupResponse(),
        ApiKey.DELETE_GROUPS: deleted,
    }

    def answer(frame: bytes) -> bytes:
        header = parse_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        request, _ = decoder(request_class(key), version)(frame, header.body_offset)
        asked.append(request)
        made = answers[key](request)
        return b"".join(
            bytes(part)
            for part in response_frame(key, version, header.correlation_id, encoder(type(made), version)(made))
        )

    with peer(answer) as address:
        assert tidied(address) == 1
    names = [name for one in asked for name in getattr(one, "topic_names", ())]
    assert sorted(names) == sorted(topics[:1] + topics[4:])
    assert [(one.group_id, one.members[0].member_id) for one in asked if hasattr(one, "members")] == [("full", "m")]
    assert asked[-1].groups_names == ["full", "newer"]


def test_the_library_of_each_compression_is_there_from_the_start() -> None:
    codecs: list[tuple[str, int, int]] = []

    def answer(frame: bytes) -> bytes:
        header = parse_request_header(frame)
        request, _ = decoder(request_class(ApiKey.PRODUCE), header.api_version)(frame, header.body_offset)
        for topic in request.topic_data:
            codecs.extend((topic.name, each.index, read_header(each.records).codec) for each in topic.partition_data)
        parts = encoder(ProduceResponse, header.api_version)(ProduceResponse())
        return b"".join(map(bytes, response_frame(ApiKey.PRODUCE, header.api_version, header.correlation_id, parts)))

    with peer(answer) as address:
        all_compressions(address, ["t", "u"])
    assert sorted(codecs) == [(name, index, codec) for name in ("t", "u") for index in (0, 1) for codec in range(5)]
