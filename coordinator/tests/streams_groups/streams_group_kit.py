"""The kit of `barnabas.coordinator.tests.kit` with streams groups: an application of one or more subtopologies, members
that run in processes, and a broker that makes internal topics when it is told to.

Topics are told as partition counts by name. Tasks are written as text: "0_1 0_2".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.epochs.records import is_tombstone
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import InternalTopic
from barnabas.coordinator.group.streams.group import HeartbeatAnswer, StreamsGroup
from barnabas.coordinator.group.streams.groups import StreamsGroups
from barnabas.coordinator.group.streams.stored import StreamsRecord, parse_streams_group, streams_record
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks, each_task
from barnabas.coordinator.group.topics import Topic, Topics
from barnabas.coordinator.machine import Result
from barnabas.coordinator.tests.kit import Kit
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

Request = StreamsGroupHeartbeatRequest
QUICK = StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
"""Settings of most tests: nothing is waited for."""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")[:16]


def subtopology(
    subtopology_id: str = "0",
    sources: Iterable[str] = ("in",),
    *,
    changelogs: Iterable[str] = (),
    writes: Iterable[str] = (),
    reads: Iterable[str | tuple[str, int]] = (),
    regex: Iterable[str] = (),
) -> Request.Subtopology:
    """`reads`: repartition topics, with a partition count if it is fixed."""
    pairs = [(each, 0) if isinstance(each, str) else each for each in reads]
    return Request.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        source_topic_regex=list(regex),
        state_changelog_topics=[Request.TopicInfo(name=name) for name in changelogs],
        repartition_sink_topics=list(writes),
        repartition_source_topics=[Request.TopicInfo(name=name, partitions=count) for name, count in pairs],
    )


def topology(*subtopologies: Request.Subtopology, epoch: int = 0) -> Request.Topology:
    return Request.Topology(epoch=epoch, subtopologies=list(subtopologies) or [subtopology()])


def listed(text: str) -> list[Request.TaskIds]:
    found: dict[str, list[int]] = {}
    for task in text.split():
        name, _, number = task.rpartition("_")
        found.setdefault(name, []).append(int(number))
    return [Request.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in found.items()]


def shown(tasks: Any) -> str:
    """Tasks as text; of a message or of a value."""
    if tasks is None:
        return "-"
    if isinstance(tasks, Mapping):
        return " ".join(f"{name}_{number}" for name, number in sorted(each_task(tasks)))
    return " ".join(f"{each.subtopology_id}_{number}" for each in tasks for number in each.partitions)


class StreamsKit(Kit):
    """See the module. wanted: internal topics of the last answer that are to be made."""

    client_id = "c"

    def __init__(self, config: StreamsGroupConfig = QUICK, **topics: int) -> None:
        self.streams_config = config
        self.settings: dict[str, StreamsSettings] = {}
        self.topics = Topics(1, {name: Topic(name, topic_id(name), count) for name, count in topics.items()})
        super().__init__(GroupConfig(group_initial_rebalance_delay_ms=0))
        self.wanted: Mapping[str, InternalTopic] = {}

    def new_shard(self) -> GroupShard:
        shard = GroupShard(
            self.config,
            streams_config=lambda: self.streams_config,
            streams_settings_of=lambda name: self.settings.get(name),
        )
        shard.set_topics(self.topics, self.topics.by_name.keys())
        return shard

    def run(self, result: Result) -> None:
        for record in result.records:
            meaning = parse_streams_group(record.key, record.value)
            if meaning is not None:
                assert streams_record(meaning)[:2] == record[:2], "what is read is what was written"
        super().run(result)

    @property
    def streams(self) -> StreamsGroups:
        streams = self.shard.wanted_streams()
        assert streams is not None
        return streams

    def set_topics(self, **counts: int | None) -> None:
        """Topics come, get partitions, or go (None)."""
        changes = {
            name.replace("__", "-"): None if count is None else Topic(name.replace("__", "-"), topic_id(name), count)
            for name, count in counts.items()
        }
        self.topics = self.topics.with_changes(self.topics.version + 1, changes)
        self.shard.set_topics(self.topics, changes.keys())

    def make_topics(self) -> None:
        """The internal topics that the last answer wanted are made."""
        self.set_topics(**{name: topic.partitions for name, topic in self.wanted.items()})

    # -- members ----------------------------------------------------------------------------------

    def send(self, member_id: str = "a", epoch: int = 0, *, group: str = "g", **fields: Any) -> int:
        """Send a heartbeat with these fields; returns its token. owned: active, standby and warm-up tasks as text."""
        token = self.token()
        owned = fields.pop("owned", None)
        if owned is not None:
            parts = [*([owned] if isinstance(owned, str) else owned), "", ""][:3]
            lists = dict(zip(("active_tasks", "standby_tasks", "warmup_tasks"), map(listed, parts), strict=True))
            fields = lists | fields
        fields.setdefault("endpoint_information_epoch", 0)
        request = Request(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        self.run(self.streams.heartbeat(request, self.client_id, "/127.0.0.1", token, self.now))
        return token

    def told(self, token: int) -> StreamsGroupHeartbeatResponse:
        """The answer to a heartbeat, which must be there."""
        answer = self.answer(token)
        assert isinstance(answer, HeartbeatAnswer)
        self.wanted = answer.wanted
        return answer.response

    def beat(self, member_id: str = "a", epoch: int = 0, **fields: Any) -> StreamsGroupHeartbeatResponse:
        return self.told(self.send(member_id, epoch, **fields))

    def enter(self, member_id: str = "a", process: str | None = None, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A request to join, with all that Kafka Streams sends."""
        return self.told(self.send_join(member_id, process, **fields))

    def send_join(self, member_id: str = "a", process: str | None = None, **fields: Any) -> int:
        fields = {
            "topology": topology(),
            "rebalance_timeout_ms": 60_000,
            "process_id": process or f"p-{member_id}",
            "endpoint_information_epoch": -1,
            "owned": "",
            "client_tags": [],
        } | fields
        return self.send(member_id, 0, **fields)

    def again(self, member_id: str, *, group: str = "g", **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A heartbeat with the member's own epoch."""
        return self.beat(member_id, self.known(member_id, group).standing.epoch, group=group, **fields)

    def code(self, *args: Any, **fields: Any) -> ErrorCode:
        return ErrorCode(self.beat(*args, **fields).error_code)

    def rest(self, *member_ids: str, rounds: int = 6) -> dict[str, str]:
        """Heartbeats of members that do at once what they are told. What each has active then."""
        for _ in range(rounds):
            self.advance(self.streams_config.assignment_interval_ms / 1_000)
            for member_id in member_ids:
                held = self.known(member_id).standing.assigned
                answer = self.again(member_id, owned=[shown(tasks) for tasks in held])
                assert answer.error_code == ErrorCode.NONE, answer
        return {member_id: shown(self.known(member_id).standing.assigned.active) for member_id in member_ids}

    # -- what there is ----------------------------------------------------------------------------

    def streams_group(self, group_id: str = "g") -> StreamsGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, StreamsGroup)
        return group

    def known(self, member_id: str, group: str = "g") -> Any:
        return self.streams_group(group).members[member_id]

    def held(self, member_id: str) -> HeldTasks:
        return self.streams_group().members[member_id].standing.assigned

    def target(self, member_id: str) -> Tasks:
        return self.streams_group().target.get(member_id, Tasks())

    def kinds(self, start: int = 0) -> list[int]:
        """Types of the records, tombstones negative."""
        kinds = []
        for record in self.log[start:]:
            kind = int.from_bytes(record.key[:2], "big")
            kinds.append(kind if record.value is not None else -kind)
        return kinds

    def records(self, start: int = 0) -> list[StreamsRecord]:
        """What was written, from a position in the log."""
        parsed = (parse_streams_group(record.key, record.value) for record in self.log[start:])
        return [record for record in parsed if record is not None and not is_tombstone(record)]

    def hard(self) -> dict[str, Any]:
        """Hard state of all streams groups."""
        return {
            group_id: (
                group.epoch,
                group.metadata_hash,
                group.members,
                group.target_epoch,
                group.assigned_at_ms,
                group.target,
                group.topology,
                group.validated_epoch,
                group.assignment_configs,
            )
            for group_id, group in self.shard.groups.items()
            if isinstance(group, StreamsGroup)
        }


def statuses(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in answer.status or ()]
