"""Topics and groups over a blocking client: made, deleted, and everything deleted between two tests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from barnabas.server.network import blocking_admin
from barnabas.server.network.blocking_admin import Refused, create_topic, delete_topics, reset
from barnabas.server.network.blocking_client import BlockingClient
from barnabas.server.testing import broker_thread

E = ErrorCode


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_thread(auto_create_topics_enable="false") as bootstrap:
        with BlockingClient(bootstrap, timeout_s=60) as client:  # makes the topic of the groups' coordinators
            client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        yield bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap, timeout_s=60) as client:
        yield client


def topics(client: BlockingClient) -> dict[str, int]:
    found = client.ask(MetadataRequest(topics=None), 12).topics
    return {topic.name: len(topic.partitions) for topic in found if not topic.is_internal}


def groups(client: BlockingClient) -> dict[str, str]:
    return {group.group_id: group.group_state for group in client.ask(ListGroupsRequest(), 5).groups}


def coordinated(client: BlockingClient, request: object, version: int) -> object:
    """Asked again while the coordinator is being loaded."""
    while True:
        answer = client.ask(request, version)
        code = getattr(answer, "error_code", None)
        if code is None:
            code = answer.topics[0].partitions[0].error_code
        if code not in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
            return answer
        time.sleep(0)


def join(client: BlockingClient, group: str, instance: str | None = None) -> None:
    """A member of a classic group, which stays."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert coordinated(client, request, 3 if instance is None else 5).error_code == E.NONE  # type: ignore[attr-defined]


def beat(client: BlockingClient, group: str, member: str) -> None:
    """A member of a KIP-848 group, which stays."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert coordinated(client, request, 1).error_code == E.NONE  # type: ignore[attr-defined]


def commit(client: BlockingClient, group: str, topic: str) -> None:
    """Offsets of a group without members."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    coordinated(client, OffsetCommitRequest(group_id=group, topics=[named]), 8)


def test_a_topic_is_made_and_deleted(client: BlockingClient) -> None:
    create_topic(client, "made", 3, {"cleanup.policy": "compact"})
    create_topic(client, "plain")
    assert topics(client) == {"made": 3, "plain": 1}
    with pytest.raises(Refused, match="topic made was not created: Topic 'made' already exists"):
        create_topic(client, "made")
    with pytest.raises(Refused, match=r"topic x was not created: .*retention\.ms"):
        create_topic(client, "x", settings={"retention.ms": "soon"})
    delete_topics(client, ["made", "never", "plain"])
    assert topics(client) == {}


def test_reset_deletes_topics_and_groups_of_every_kind(client: BlockingClient, bootstrap: str) -> None:
    for name in ("t", "u"):
        create_topic(client, name, 2)
    commit(client, "simple", "t")
    join(client, "classic")
    join(client, "static", "one")
    beat(client, "modern", "m-1")
    beat(client, "modern", "m-2")
    assert set(groups(client)) == {"simple", "classic", "static", "modern"}
    with BlockingClient(bootstrap, timeout_s=60) as another:
        reset(another)
    assert groups(client) == {}
    assert topics(client) == {}
    create_topic(client, "t", 5)
    assert topics(client) == {"t": 5}
    reset(client)
    reset(client)


def test_groups_whose_members_come_back(client: BlockingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    join(client, "busy")
    with monkeypatch.context() as patched:
        patched.setattr(blocking_admin, "_empty_classic", lambda client, group: None)  # as if they had joined again
        with pytest.raises(Refused, match="members of these groups rejoin: busy; close their consumers first"):
            reset(client)
    reset(client)
    assert groups(client) == {}


def test_many_at_once(client: BlockingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_admin, "_AT_ONCE", 3)
    create_topic(client, "t", 1)
    for number in range(7):
        commit(client, f"g{number}", "t")
        create_topic(client, f"t{number}")
    reset(client)
    assert (topics(client), groups(client)) == ({}, {})
