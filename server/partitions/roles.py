"""Listeners of the roles of this broker's partitions: coordinators, replication, copies to other directories.

They are made from `Partitions`, so it gets them afterwards, once (`Partitions.listen`). `NO_LISTENER` replaces a part
that a broker does not have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from barnabas.replication import BrokerImage, Proposal
from barnabas.server.partitions.partition import Partition


class CoordinatorRoles(Protocol):
    """Coordinates groups, transactions or share partitions; notified of the roles of its topic's partitions."""

    def lead(self, partition: Partition) -> None: ...

    def resign(self, index: int) -> None: ...

    def resign_all(self) -> None: ...

    def write_failed(self, index: int) -> None:
        """Staged records of the partition may be lost, though its log can be used."""


class GroupRoles(CoordinatorRoles, Protocol):
    """Has groups with committed offsets; notified of deleted topics."""

    def topics_deleted(self, topics: Collection[str]) -> None: ...


class ShareStateRoles(CoordinatorRoles, Protocol):
    """Has what is stored of share partitions; notified of deleted topics."""

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None: ...


class FollowerRoles(Protocol):
    """Fetches from leaders. Both may be called again for a known partition, with a newer epoch."""

    def follow(self, partition: Partition, leader: BrokerImage) -> None: ...

    def unfollow(self, partition: Partition) -> None: ...


class IsrProposals(Protocol):
    """Sends proposals of ISRs to the controller."""

    def submit(self, partition: Partition, proposal: Proposal) -> None: ...


class LogDirMoves(Protocol):
    """Copies partitions from one log directory to another."""

    def resume(self, partition: Partition) -> None:
        """Fill the copy (`Partition.future`). It may be known already."""


class NoListener:
    """Implements all of them, and does nothing."""

    def lead(self, partition: Partition) -> None:
        """Part of `CoordinatorRoles`."""

    def resign(self, index: int) -> None:
        """Part of `CoordinatorRoles`."""

    def resign_all(self) -> None:
        """Part of `CoordinatorRoles`."""

    def write_failed(self, index: int) -> None:
        """Part of `CoordinatorRoles`."""

    def topics_deleted(self, topics: Collection[str] | Collection[bytes]) -> None:
        """Part of `GroupRoles` and of `ShareStateRoles`."""

    def follow(self, partition: Partition, leader: BrokerImage) -> None:
        """Part of `FollowerRoles`."""

    def unfollow(self, partition: Partition) -> None:
        """Part of `FollowerRoles`."""

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Part of `IsrProposals`."""

    def resume(self, partition: Partition) -> None:
        """Part of `LogDirMoves`."""


NO_LISTENER: Final = NoListener()


@dataclass(frozen=True)
class RoleListeners:
    """`groups`, `transactions`, `share_states`: the coordinators. `followers` fetches from leaders, `isr` sends
    proposals to the controller, `moves` copies to other log directories.
    """

    groups: GroupRoles = NO_LISTENER
    transactions: CoordinatorRoles = NO_LISTENER
    share_states: ShareStateRoles = NO_LISTENER
    followers: FollowerRoles = NO_LISTENER
    isr: IsrProposals = NO_LISTENER
    moves: LogDirMoves = NO_LISTENER
