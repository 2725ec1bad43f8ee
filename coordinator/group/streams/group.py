"""One streams group: heartbeats, leaving, time-outs (KIP-1071).

There is one request, StreamsGroupHeartbeat. Epoch 0 joins, −1 leaves; else it is the member's epoch, and null means
"unchanged". The order of the steps of a heartbeat is the order of its records, and both are Apache Kafka's. Each answer
is held until its content is committed, and comes with the internal topics that are to be made.

Whoever joins an empty group waits for others (INITIAL_DELAY): until then there is no target, and members have nothing.

`now` is `machine.Now`; time-outs are milliseconds. Differences from Apache Kafka: a member that says that it has other
tasks than it should is sent its assignment again, as is one that comes with the epoch before its present one: the last
answer was lost; members of a group that has changed lately are asked for heartbeats more often; the first target is
made though nobody has sent a second heartbeat. Sources: KIP-1071, `GroupMetadataManager.streamsGroupHeartbeat` of
Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.coordinator.group.answers import write_error
from barnabas.coordinator.group.classic.states import Why
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.records import Member, MemberStanding
from barnabas.coordinator.group.epochs.state import removal
from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import ConfiguredTopology, InternalTopic, Status, configure
from barnabas.coordinator.group.streams.endpoints import by_endpoint
from barnabas.coordinator.group.streams.reconcile import Target, reconcile
from barnabas.coordinator.group.streams.state import StreamsMember, StreamsState
from barnabas.coordinator.group.streams.sticky import AssignedMember, assign_sticky
from barnabas.coordinator.group.streams.stored import (
    NO_EPOCH,
    Endpoint,
    GroupFacts,
    StoredTopology,
    StreamsEpoch,
    StreamsMetadata,
    StreamsRecord,
    streams_record,
)
from barnabas.coordinator.group.streams.tasks import Tasks, TaskSet, in_order, task_set
from barnabas.coordinator.group.streams.topology import SentTopology, Topology, topology_of
from barnabas.coordinator.machine import Decision, Now
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

_Tasks = StreamsGroupHeartbeatResponse.TaskIds
_Status = StreamsGroupHeartbeatResponse.Status


class HeartbeatAnswer(NamedTuple):
    """What a heartbeat comes to. wanted: internal topics to be made with the client's rights, by name; what comes of
    it is told in the status MISSING_INTERNAL_TOPICS of the response.
    """

    response: StreamsGroupHeartbeatResponse
    wanted: Mapping[str, InternalTopic]


class StreamsGroup(StreamsState):
    """See the module. Methods that decide write into the `Decision` of the operation; they raise KafkaError to refuse,
    and nothing was decided then.
    """

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        config: StreamsGroupConfig,
        is_new: bool,
        token: Any,
        now: Now,
        out: Decision,
    ) -> None:
        """A member joins, or says that it lives. is_new: the group is made by this request."""
        owned = _owned(request)
        before = self._member(request, owned, config)
        settings = self.settings()
        records: list[StreamsRecord] = []
        statuses: list[_Status] = []
        member = before._replace(metadata=_metadata(before.metadata, request, client_id, client_host))
        is_changed = member.metadata != before.metadata or member.member_id not in self.members
        if is_changed:
            records.append(Member(self.group_id, member.member_id, member.metadata))
        topology = self._agree(request.topology, records)
        if self.topology is not None and member.metadata.topology_epoch < self.topology.epoch:
            statuses.append(_stale(member, self.topology))
        configured, metadata_hash = self._configure(topology)
        if configured.is_ready and owned is not None:
            _check_tasks(configured, owned)
        facts = GroupFacts(
            self.epoch, metadata_hash, topology.epoch if configured.is_ready else NO_EPOCH, settings.assignment_configs
        )
        epoch = self._raise_epoch(facts, is_changed, member.member_id in self.members, records)
        self._wait_for_others(settings, now)
        target = self._target(member, epoch, configured, settings, now, records, statuses)
        member = self._reconcile(member, target, owned if request.member_epoch else Tasks(), records)
        out.records.extend(map(streams_record, records))
        self.heard_of(member, now)
        if request.shutdown_application:
            self._shut_down(member.member_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.standing.epoch,
            heartbeat_interval_ms=self._next_heartbeat_ms(settings, configured, target, epoch, now),
        )
        self._tell_tasks(request, before, member, owned, is_new, response)
        response.endpoint_information_epoch = self.endpoint_epoch
        if self.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = by_endpoint(
                (*(each for each in self.members.values() if each.member_id != member.member_id), member),
                configured,
                self.context.topics.by_name,
            )
        if configured.problem is not None:
            statuses.append(_Status(status_code=configured.problem.status, status_detail=configured.problem.detail))
        if self.shutdown_by is not None:
            detail = f"Member {self.shutdown_by} asked all members to close, as it cannot go on."
            statuses.append(_Status(status_code=Status.SHUTDOWN_APPLICATION, status_detail=detail))
        response.status = statuses
        wanted = {} if configured.problem is None else configured.wanted
        out.reply_when_committed(token, HeartbeatAnswer(response, wanted), heartbeat_refusal)

    # -- steps of a heartbeat ---------------------------------------------------------------------

    def _member(
        self, request: StreamsGroupHeartbeatRequest, owned: Tasks | None, config: StreamsGroupConfig
    ) -> StreamsMember:
        """Who it is. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED."""
        member_id, epoch = request.member_id, request.member_epoch
        member = self.members.get(member_id)
        if member is None:
            if epoch != 0:
                raise self._no_member(member_id)
            if len(self.members) >= config.max_size:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The group has {len(self.members)} members, more it may not have.",
                )
            return StreamsMember(member_id)
        standing = member.standing
        if epoch in (0, standing.epoch):
            return member
        # Who did not get the answer with the present epoch comes with the one before.
        is_behind = epoch == standing.previous_epoch and epoch < standing.epoch
        if is_behind and owned is not None and owned.is_within(standing.assigned):
            return member
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member's epoch is {standing.epoch}, not {epoch}: it must close all its tasks and rejoin.",
        )

    def _agree(self, sent: SentTopology | None, records: list[StreamsRecord]) -> Topology:
        """The topology of the group. Raises KafkaError INVALID_REQUEST if the member has another one."""
        if sent is None:
            if self.topology is None:
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The group has no topology: the member must rejoin.")
            return self.topology
        topology = topology_of(sent)
        if self.topology is None:
            records.append(StoredTopology(self.group_id, topology))
            return topology
        if topology.epoch >= self.topology.epoch and topology != self.topology:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The group has another topology, and topologies cannot be changed yet."
            )
        return self.topology

    def _configure(self, topology: Topology) -> tuple[ConfiguredTopology, int]:
        """The topology beside the topics as they are, and the hash of these. Raises KafkaError
        STREAMS_INVALID_TOPOLOGY.
        """
        is_stored = self.topology is not None
        # What was seen and could not be written is seen again, also if the epoch has risen for another reason since.
        is_due = self.looks.is_due(self.epoch) or self.configured_hash != self.metadata_hash
        if is_stored and self.configured is not None and not is_due:
            return self.configured, self.metadata_hash
        names = topology.required_topics
        metadata_hash = self.context.metadata_hash(names)
        if is_stored and self.configured is not None and metadata_hash == self.configured_hash:
            return self.configured, metadata_hash
        by_name = self.context.topics.by_name
        partitions = {name: by_name[name].partition_count for name in names if name in by_name}
        configured = configure(topology, partitions)
        if is_stored:
            self.configured, self.configured_hash = configured, metadata_hash
        return configured, metadata_hash

    def _raise_epoch(self, facts: GroupFacts, is_changed: bool, is_known: bool, records: list[StreamsRecord]) -> int:
        """The group's epoch: the next one if the member changed something, or `facts` of the group are others now."""
        present = GroupFacts(self.epoch, self.metadata_hash, self.validated_epoch, self.assignment_configs)
        epoch = self.epoch
        if is_changed or facts != present:
            epoch = self.raised_epoch()
            records.append(StreamsEpoch(self.group_id, facts._replace(epoch=epoch)))
            why = Why.SUBSCRIPTION if is_known else Why.JOINED
            self.rebalances[why if is_changed else Why.TOPICS] += 1
            log.info("streams group %r: epoch %d", self.group_id, epoch)
        self.looks.done(epoch)
        return epoch

    def _wait_for_others(self, settings: StreamsSettings, now: Now) -> None:
        if self.is_empty and settings.initial_rebalance_delay_ms > 0 and not self.is_waiting:
            self.arm(Due.INITIAL_DELAY, "", settings.initial_rebalance_delay_ms, now)

    @property
    def is_waiting(self) -> bool:
        """Whether there is no target yet as others may join."""
        return (self.group_id, Due.INITIAL_DELAY, "") in self.context.deadlines

    def _target(
        self,
        member: StreamsMember,
        epoch: int,
        configured: ConfiguredTopology,
        settings: StreamsSettings,
        now: Now,
        records: list[StreamsRecord],
        statuses: list[_Status],
    ) -> Target:
        """What the member is to have: by a new target if the group has moved on, and the last one is old enough."""
        last = Target(self.target_epoch, self.target.get(member.member_id, Tasks()))
        if self.is_waiting:
            statuses.append(_delayed("The first members of the group wait for others."))
            return Target(self.target_epoch)
        if self.target_epoch >= epoch:
            return last
        if not settings.usual.may_assign(self.assigned_at_ms, now.wall_ms):
            statuses.append(_delayed("The last assignment of the group is too young."))
            return last
        members = {**self.members, member.member_id: member}
        assigned = self._assign(members, configured, settings)
        records.extend(self.target_records(epoch, assigned, now))
        log.info("streams group %r: target of epoch %d for %d members", self.group_id, epoch, len(members))
        return Target(epoch, assigned[member.member_id])

    def _assign(
        self, members: Mapping[str, StreamsMember], configured: ConfiguredTopology, settings: StreamsSettings
    ) -> Mapping[str, Tasks]:
        """Who is to have which tasks: nobody any while something stands in the way of the topology."""
        if not configured.is_ready or configured.subtopologies is None:
            return dict.fromkeys(members, Tasks())
        described = {}
        for member_id, member in members.items():
            last = self.target.get(member_id, Tasks())
            described[member_id] = AssignedMember(member.metadata.process_id, last.active, last.standby)
        return assign_sticky(described, configured.subtopologies, settings.num_standby_replicas)

    def _reconcile(
        self, member: StreamsMember, target: Target, owned: Tasks | None, records: list[StreamsRecord]
    ) -> StreamsMember:
        """The member's next step. Raises KafkaError FENCED_MEMBER_EPOCH."""
        if member.is_at(target.epoch):
            return member
        standing = reconcile(member.standing, target, member.metadata.process_id, owned, self.owners)
        if standing is None:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member's tasks are not known: it must rejoin.")
        if standing != member.standing:
            records.append(MemberStanding(self.group_id, member.member_id, standing))
        return member._replace(standing=standing)

    def _tell_tasks(
        self,
        request: StreamsGroupHeartbeatRequest,
        before: StreamsMember,
        after: StreamsMember,
        owned: Tasks | None,
        is_new: bool,
        response: StreamsGroupHeartbeatResponse,
    ) -> None:
        """The member's tasks, if it has to be told. Others ask it, then, for what is in other stores."""
        assigned = after.standing.assigned
        is_news = request.member_epoch == 0 or assigned != before.standing.assigned
        is_lost = request.member_epoch != before.standing.epoch or (owned is not None and owned != assigned.tasks)
        if is_news or is_lost:
            response.active_tasks = _listed(assigned.active)
            response.standby_tasks = _listed(assigned.standby)
            response.warmup_tasks = _listed(assigned.warmup)
        if is_news and after.metadata.user_endpoint is not None and not is_new:
            self.endpoint_epoch += 1

    def _next_heartbeat_ms(
        self, settings: StreamsSettings, configured: ConfiguredTopology, target: Target, epoch: int, now: Now
    ) -> int:
        """When the member should be heard of again."""
        usual_ms = settings.usual.heartbeat_interval_ms
        delay = self.context.deadlines.get((self.group_id, Due.INITIAL_DELAY, ""))
        if delay is not None:
            return min(max(round((delay - now.seconds) * 1000), 1), usual_ms)
        if configured.problem is not None and configured.problem.status is not Status.MISSING_INTERNAL_TOPICS:
            # Kafka Streams gives up when it hears so for two intervals.
            return usual_ms
        age_ms = now.wall_ms - self.assigned_at_ms if target.epoch == self.target_epoch else 0
        return settings.usual.next_heartbeat_ms(age_ms, target.epoch < epoch, len(self.members))

    def _shut_down(self, member_id: str) -> None:
        if self.shutdown_by is None:
            log.info("streams group %r: member %r asks all to close", self.group_id, member_id)
            self.shutdown_by = member_id

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, request: StreamsGroupHeartbeatRequest, token: Any, now: Now, out: Decision) -> None:
        """A member leaves. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(request.member_id)
        if member is None:
            raise self._no_member(request.member_id)
        if request.shutdown_application:
            self._shut_down(member.member_id)
        self.fence([member], now, out)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, status=[]
        )
        out.reply_when_committed(token, HeartbeatAnswer(response, {}), heartbeat_refusal)

    def fence(self, members: Collection[StreamsMember], now: Now, out: Decision, why: Why = Why.LEFT) -> None:
        for member in members:
            out.records.extend(map(streams_record, removal(self.group_id, member.member_id)))
        facts = GroupFacts(self.next_epoch, self.metadata_hash, self.validated_epoch, self.assignment_configs)
        out.records.append(streams_record(StreamsEpoch(self.group_id, facts)))
        self.rebalances[why] += 1
        log.info("streams group %r: epoch %d without %d members", self.group_id, self.next_epoch, len(members))

    def _no_member(self, member_id: str) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in group {self.group_id}.")

    # -- time -------------------------------------------------------------------------------------

    def expire(self, due: Due, member_id: str, now: Now, out: Decision) -> None:
        if due is Due.INITIAL_DELAY:
            self._first_target(now, out)
        else:
            super().expire(due, member_id, now, out)

    def _first_target(self, now: Now, out: Decision) -> None:
        """Nobody is waited for any more. What cannot be decided now is with the next heartbeat."""
        settings = self.settings()
        if self.is_empty or self.topology is None or self.target_epoch >= self.epoch:
            return
        if not settings.usual.may_assign(self.assigned_at_ms, now.wall_ms):
            return
        try:
            configured, metadata_hash = self._configure(self.topology)
        except KafkaError as error:
            log.info("streams group %r has no target yet: %s", self.group_id, error.message)
            return
        validated = self.topology.epoch if configured.is_ready else NO_EPOCH
        if (metadata_hash, validated, settings.assignment_configs) != (
            self.metadata_hash,
            self.validated_epoch,
            self.assignment_configs,
        ):
            return  # the topics look different, or settings are: the next heartbeat makes an epoch of it
        assigned = self._assign(self.members, configured, settings)
        out.records.extend(map(streams_record, self.target_records(self.epoch, assigned, now)))
        log.info("streams group %r: target of epoch %d after the initial delay", self.group_id, self.epoch)

    def settings(self) -> StreamsSettings:
        """In force for this group."""
        assert self.context.streams_settings is not None
        return self.context.streams_settings(self.group_id)

    def session_timeout_ms(self) -> int:
        return self.settings().usual.session_timeout_ms


def heartbeat_refusal(code: ErrorCode, message: str | None = None) -> HeartbeatAnswer:
    """A heartbeat that was refused, by the machine or by the log."""
    return HeartbeatAnswer(StreamsGroupHeartbeatResponse(error_code=write_error(code), error_message=message), {})


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """What the member says that it has; None: as before."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(task_set(request.active_tasks), task_set(request.standby_tasks), task_set(request.warmup_tasks))


def _metadata(
    known: StreamsMetadata, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
) -> StreamsMetadata:
    endpoint, tags = request.user_endpoint, request.client_tags
    return known._replace(
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topology_epoch=known.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=known.process_id if request.process_id is None else request.process_id,
        user_endpoint=known.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=known.client_tags if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
    )


def _check_tasks(configured: ConfiguredTopology, owned: Tasks) -> None:
    for tasks in owned:
        for subtopology, partitions in tasks.items():
            partition = configured.unknown_task(subtopology, partitions)
            if partition is not None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no task {subtopology}_{partition}.")


def _listed(tasks: TaskSet) -> list[_Tasks]:
    return [_Tasks(subtopology_id=subtopology, partitions=numbers) for subtopology, numbers in in_order(tasks)]


def _delayed(detail: str) -> _Status:
    return _Status(status_code=Status.ASSIGNMENT_DELAYED, status_detail=detail)


def _stale(member: StreamsMember, topology: Topology) -> _Status:
    detail = f"The member's topology has epoch {member.metadata.topology_epoch}, the group's {topology.epoch}."
    return _Status(status_code=Status.STALE_TOPOLOGY, status_detail=detail)


def texts(request: StreamsGroupHeartbeatRequest) -> Iterable[str | None]:
    """All that a request to join would have written, or shown."""
    yield from (request.rack_id, request.process_id)
    if request.user_endpoint is not None:
        yield request.user_endpoint.host
    for tag in request.client_tags or ():
        yield from (tag.key, tag.value)
    for each in () if request.topology is None else request.topology.subtopologies:
        yield each.subtopology_id
        yield from (*each.source_topics, *each.repartition_sink_topics)
        for topic in (*each.state_changelog_topics, *each.repartition_source_topics):
            yield topic.name
            for config in topic.topic_configs:
                yield from (config.key, config.value)
