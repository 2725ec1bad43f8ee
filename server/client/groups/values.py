"""A group, its members, and what it has committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.server.client.client import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"


class ListedGroup(NamedTuple):
    """`kind`: classic, consumer, share or streams. `protocol_type`: consumer, connect, … `state`: "" before 2.6."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    """`partitions`: assigned to it. `topics`: that it has subscribed to, as far as it says."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`state`: as Apache Kafka names it (Empty, Stable, …). `assignor`: of a classic group what its members agreed on;
    "" of a streams group. `epoch`: -1 for a classic group, whose generation is not told.
    """

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    members: tuple[Member, ...]
    coordinator: int

    @property
    def holders(self) -> dict[TopicPartition, Member]:
        """Whose each partition is; of a share group's one of those who read it."""
        return {partition: member for member in self.members for partition in member.partitions}


class Committed(NamedTuple):
    """`offset`: the next record to be read; of a share group the first that is not settled. `lag`: how many from there
    on are not, as the group says; None: it does not say, and nothing from `offset` on is read.
    """

    offset: int
    leader_epoch: int
    metadata: str
    lag: int | None = None
