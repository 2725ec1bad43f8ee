"""Groups from the outside: listed, described, deleted; their offsets altered and deleted."""

from __future__ import annotations

from compat_tests.cases import Names, case
from compat_tests.cases.groups import settle
from compat_tests.harness.checks import opened, read, ready_topic, refused, texts, wait_until
from compat_tests.harness.client import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    Client,
    positions,
)

AREA = "groups, administration"


def with_commit(client: Client, topic: str, group: str, count: int = 10) -> None:
    """Let a member read the topic, commit and leave."""
    client.produce(topic, texts(count))
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        read(member, count)
        member.commit()


@case(AREA, "a live group is listed and described with its assignment")
def describe(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names(), 3), names("group")
    members = [client.consumer(subscribe=[topic], group=group, client_id=f"member-{n}") for n in range(2)]
    with opened(*members):
        settle(members, positions(topic, 3))
        assert group in client.groups()

        def stable() -> bool:
            for member in members:
                member.poll(0.05)
            return client.describe_group(group).state == "Stable"

        wait_until(stable, "state Stable")
        found = client.describe_group(group)
        held = {f"member-{n}": frozenset(member.assignment()) for n, member in enumerate(members)}
        assert {one.client_id: one.assignment for one in found.members} == held


@case(AREA, "a left group is Empty and keeps its offsets")
def empty(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with_commit(client, topic, group)
    wait_until(lambda: client.describe_group(group).state == "Empty", "state Empty")
    assert client.describe_group(group).members == ()
    assert client.group_offsets(group) == {(topic, 0): 10}
    assert group in client.groups()


@case(AREA, "offsets of a group nobody knows are none")
def unknown_offsets(client: Client, names: Names) -> None:
    assert client.group_offsets(names("group")) == {}


@case(AREA, "delete an empty group", needs=["delete_group"])
def delete(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with_commit(client, topic, group)
    client.delete_group(group)
    assert group not in client.groups()
    assert client.group_offsets(group) == {}


@case(AREA, "deleting a live group is refused", needs=["delete_group"])
def delete_live(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        settle([member], positions(topic, 1))
        with refused(NON_EMPTY_GROUP):
            client.delete_group(group)
        assert group in client.groups()


@case(AREA, "deleting an unknown group is refused", needs=["delete_group"])
def delete_unknown(client: Client, names: Names) -> None:
    with refused(GROUP_ID_NOT_FOUND):
        client.delete_group(names("group"))


@case(AREA, "reset the offsets of an empty group", needs=["set_group_offsets"])
def reset(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with_commit(client, topic, group)
    client.set_group_offsets(group, {(topic, 0): 4})
    assert client.group_offsets(group) == {(topic, 0): 4}
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        assert [one.offset for one in read(member, 6)] == list(range(4, 10))


@case(AREA, "resetting the offsets of a live group is refused", needs=["set_group_offsets"])
def reset_live(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        settle([member], positions(topic, 1))
        with refused(UNKNOWN_MEMBER_ID):
            client.set_group_offsets(group, {(topic, 0): 0})


@case(AREA, "offsets may be set for a group that does not exist yet", needs=["set_group_offsets"])
def create_by_offsets(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    client.produce(topic, texts(10))
    client.set_group_offsets(group, {(topic, 0): 6})
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        assert [one.offset for one in read(member, 4)] == [6, 7, 8, 9]


@case(AREA, "delete offsets", needs=["delete_group_offsets"])
def delete_offsets(client: Client, names: Names) -> None:
    topic, other, group = ready_topic(client, names()), ready_topic(client, names()), names("group")
    with_commit(client, topic, group)
    with_commit(client, other, group)
    client.delete_group_offsets(group, [(topic, 0)])
    assert client.group_offsets(group) == {(other, 0): 10}


@case(AREA, "deleting offsets of a subscribed topic is refused", needs=["delete_group_offsets"])
def delete_offsets_live(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    client.produce(topic, texts(3))
    with opened(client.consumer(subscribe=[topic], group=group)) as member:
        read(member, 3)
        member.commit()
        with refused(GROUP_SUBSCRIBED_TO_TOPIC):
            client.delete_group_offsets(group, [(topic, 0)])
    assert client.group_offsets(group) == {(topic, 0): 3}


@case(AREA, "deleting a topic removes its committed offsets")
def topic_deleted(client: Client, names: Names) -> None:
    topic, other, group = ready_topic(client, names()), ready_topic(client, names()), names("group")
    with_commit(client, topic, group)
    with_commit(client, other, group)
    client.delete_topic(topic)
    wait_until(lambda: client.group_offsets(group) == {(other, 0): 10}, "only the other topic's offset is left")
