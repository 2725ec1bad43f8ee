"""A streams group as the log has it: hard state, changed by `apply` alone, and what follows from it.

Epochs, members and targets are those of `barnabas.coordinator.group.epochs`; beside them stand the topology, and which
one was found ready. Source: `StreamsGroup` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.committing import CommittingGroup
from barnabas.coordinator.group.epochs.records import FIRST_EPOCH, LEFT
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.streams.configured import ConfiguredTopology
from barnabas.coordinator.group.streams.owners import TaskOwners
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.stored import (
    NO_EPOCH,
    GroupFacts,
    StoredTopology,
    StreamsEpoch,
    StreamsMetadata,
    StreamsRecord,
    streams_record,
)
from barnabas.coordinator.group.streams.tasks import Tasks
from barnabas.coordinator.group.streams.topology import Topology
from barnabas.coordinator.machine import Record


class StreamsGroupState(Enum):
    """Values are the names that StreamsGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics are missing, or do not fit."""
    ASSIGNING = "Assigning"
    """The group has moved on, and there is no target for that yet."""
    RECONCILING = "Reconciling"
    """Members are moving towards the target."""
    STABLE = "Stable"


class StreamsMember(NamedTuple):
    """One member; replaced whole."""

    member_id: str
    metadata: StreamsMetadata = StreamsMetadata()
    standing: Standing = Standing()

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has all of the target."""
        return self.standing.state is MemberState.STABLE and self.standing.epoch == target_epoch


class StreamsState(CommittingGroup[StreamsMember, Tasks]):
    """See the module. Hard: `topology`, `validated_epoch`, `assignment_configs`. Soft: `configured`, the topology
    beside the topics as they were last looked at, and their hash then; `shutdown_by`, the member that asked all others
    to close; `endpoint_epoch`, which rises when a member that others may ask has got other tasks.
    """

    kind = "streams"
    protocol_type = "streams"
    dues = (Due.HEARTBEAT, Due.REVOKE, Due.INITIAL_DELAY)
    ends_with = StreamsEpoch

    def __init__(self, group_id: str, context: GroupContext, offsets: Offsets | None = None) -> None:
        super().__init__(group_id, context, offsets)
        self.topology: Topology | None = None
        self.validated_epoch = NO_EPOCH
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        self.owners = TaskOwners()
        self._watched: frozenset[str] = frozenset()
        self._readers: Mapping[str, str] = {}
        # Soft.
        self.configured: ConfiguredTopology | None = None
        self.configured_hash = 0
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0

    # -- replay -----------------------------------------------------------------------------------

    def _apply_own(self, record: StreamsEpoch | StoredTopology) -> None:
        if isinstance(record, StreamsEpoch):
            facts = record.facts or GroupFacts(FIRST_EPOCH)
            self.epoch, self.metadata_hash, self.validated_epoch, self.assignment_configs = facts
            return
        assert isinstance(record, StoredTopology)
        self.topology = record.topology
        self.configured = None
        self._watched = frozenset() if record.topology is None else record.topology.required_topics
        self._readers = {} if record.topology is None else record.topology.readers

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id)

    def _gone(self, member: StreamsMember) -> Standing:
        return Standing(LEFT, LEFT)

    def _count(self, member: StreamsMember) -> None:
        process_id, standing = member.metadata.process_id, member.standing
        self.owners.add(process_id, standing.assigned)
        self.owners.add(process_id, standing.revoking)

    def _uncount(self, member: StreamsMember) -> None:
        process_id, standing = member.metadata.process_id, member.standing
        self.owners.remove(process_id, standing.assigned)
        self.owners.remove(process_id, standing.revoking)
        if not self.members:
            self.shutdown_by = None

    # -- what follows -----------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_at(self.target_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_void(self) -> bool:
        return not (self.members or self.target or self.offsets) and (
            self.topology is None and self.epoch == FIRST_EPOCH and self.target_epoch == FIRST_EPOCH
        )

    @property
    def watched(self) -> Collection[str]:
        return self._watched

    @property
    def subscribed(self) -> Collection[str]:
        return self._readers.keys() if self.members else ()

    def revocation_timeout_ms(self, member: StreamsMember) -> int | None:
        return member.metadata.rebalance_timeout_ms if member.standing.state is MemberState.UNREVOKED else None

    def assigned_since(self, member: StreamsMember, topic: str, partition: int) -> int | None:
        subtopology_id = self._readers.get(topic)
        return None if subtopology_id is None else member.standing.assignment_epoch(subtopology_id, partition)

    # -- the end ----------------------------------------------------------------------------------

    def _own_tombstones(self) -> Iterator[StreamsRecord]:
        yield StreamsEpoch(self.group_id, None)
        yield StoredTopology(self.group_id, None)

    def removal_records(self) -> Iterator[Record]:
        return map(streams_record, self.tombstones())

    def forget(self) -> None:
        super().forget()
        self.disarm(Due.INITIAL_DELAY, "")
