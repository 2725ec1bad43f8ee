"""What administrators are shown of the groups of one partition: DescribeGroups, ConsumerGroupDescribe, ListGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.states import State
from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.state import ConsumerMember
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, shortened
from barnabas.kproto.messages import ConsumerGroupDescribeResponse, DescribeGroupsResponse, ListGroupsResponse

CLASSIC_MEMBER: Final = 0
MODERN_MEMBER: Final = 1


class GroupViews:
    """See the module."""

    def __init__(self, store: GroupStore) -> None:
        self._groups = store.groups
        self._store = store
        self._foreign = store.foreign

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        """DescribeGroups, for one group. Unknown ones are "Dead", from version 6 on with GROUP_ID_NOT_FOUND as well."""
        group = self._groups.get(group_id)
        # What an old log has held may be longer than what is accepted today.
        if isinstance(group, ClassicGroup) and not all(
            fits(member.member_id, member.instance_id, member.client_id) for member in group.members
        ):
            return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if not isinstance(group, ClassicGroup) or group_id in self._foreign:
            unknown = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version >= 6:
                unknown.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                is_known = group is not None or group_id in self._foreign
                unknown.error_message = _refusal(group_id, "is not a classic group." if is_known else "not found.")
            return unknown
        stable = group.state is State.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol or "" if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members
            ],
        )

    def consumer_describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe, for one group. GROUP_ID_NOT_FOUND if there is none, or it is of another kind."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or group_id in self._foreign:
            is_known = group is not None or group_id in self._foreign
            return ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=_refusal(group_id, "is not a consumer group." if is_known else "not found."),
            )
        return ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.assignor(),
            members=[_described(group, member) for member in group.members.values()],
        )

    def listed(self, states: Collection[str], types: Collection[str]) -> Iterator[ListGroupsResponse.ListedGroup]:
        """ListGroups. `states` and `types`: names in any case to keep; empty: all."""
        return (group for group in self.looked_through(states, types) if group is not None)

    def looked_through(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListGroupsResponse.ListedGroup | None]:
        """As `listed`, with None for each group that is not: the caller may pause anywhere among very many, and gets
        those that there were at the beginning.
        """
        wanted = {name.lower().strip() for name in states}
        kinds = {name.lower() for name in types}
        for group in list(self._groups.values()):
            if (
                (kinds and group.kind not in kinds)
                or (wanted and not wanted.intersection(_names(group.state_name)))
                or group.group_id in self._foreign
                or not fits(group.group_id)  # as above; it must not keep the others from being listed
            ):
                yield None
                continue
            yield ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
        if self._store.shares is not None:
            yield from self._store.shares.looked_through(wanted, kinds)


def _names(state: str) -> tuple[str, ...]:
    """What a filter may call a state. Apache Kafka 4.3 knows NotReady by the other name alone."""
    return ("notready", "not_ready") if state == "NotReady" else (state.lower(),)


def _refusal(group_id: str, why: str) -> str:
    return f"Group {shortened(group_id)} {why}"


def _described(group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroupDescribeResponse.Member:
    metadata, standing = member.metadata, member.standing
    held: dict[TopicId, set[int]] = {}
    for part in (standing.assigned, standing.revoking):
        for topic, partitions in part.items():
            held.setdefault(topic, set()).update(partitions)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=standing.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_pattern,
        assignment=_assignment(group, held),
        target_assignment=_assignment(group, group.target.get(member.member_id, {})),
        member_type=CLASSIC_MEMBER if member.is_classic else MODERN_MEMBER,
    )


def _assignment(
    group: ConsumerGroup, assigned: Mapping[TopicId, Collection[int]]
) -> ConsumerGroupDescribeResponse.Assignment:
    """With the names of topics; those that are gone are left out."""
    by_id = group.context.topics.by_id
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic, topic_name=by_id[topic].name, partitions=sorted(partitions)
            )
            for topic, partitions in assigned.items()
            if topic in by_id
        ]
    )
