"""Who must know what becomes of the partitions of this broker: coordinators, replication, copies to other directories.

They need `Partitions` to be made, so it gets them afterwards, once (`Partitions.listen`). Where a broker has no such
part, `NOBODY` stands for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from barnabas.replication import BrokerImage, Proposal
from barnabas.server.partitions.partition import Partition


class CoordinatorRoles(Protocol):
    """Who coordinates groups or transactions, and so must know what becomes of the partitions of its topic."""

    def lead(self, partition: Partition) -> None: ...

    def resign(self, index: int) -> None: ...

    def resign_all(self) -> None: ...

    def write_failed(self, index: int) -> None:
        """Something that was staged for the partition may be lost, though its log can be used."""


class GroupRoles(CoordinatorRoles, Protocol):
    """Whose groups commit offsets, and so must know what becomes of topics."""

    def topics_deleted(self, topics: Collection[str]) -> None: ...


class FollowerRoles(Protocol):
    """Who fetches from leaders. Both may be called again for a partition that it knows, with a newer epoch."""

    def follow(self, partition: Partition, leader: BrokerImage) -> None: ...

    def unfollow(self, partition: Partition) -> None: ...


class IsrProposals(Protocol):
    """Who carries wishes for another ISR to the controller."""

    def submit(self, partition: Partition, proposal: Proposal) -> None: ...


class LogDirMoves(Protocol):
    """Who copies partitions from one log directory to another."""

    def go_on(self, partition: Partition) -> None:
        """There is a copy (`Partition.future`): fill it. It may be known already."""


class Nobody:
    """Stands for all of them where there is none."""

    def lead(self, partition: Partition) -> None:
        """Part of `CoordinatorRoles`."""

    def resign(self, index: int) -> None:
        """Part of `CoordinatorRoles`."""

    def resign_all(self) -> None:
        """Part of `CoordinatorRoles`."""

    def write_failed(self, index: int) -> None:
        """Part of `CoordinatorRoles`."""

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Part of `GroupRoles`."""

    def follow(self, partition: Partition, leader: BrokerImage) -> None:
        """Part of `FollowerRoles`."""

    def unfollow(self, partition: Partition) -> None:
        """Part of `FollowerRoles`."""

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Part of `IsrProposals`."""

    def go_on(self, partition: Partition) -> None:
        """Part of `LogDirMoves`."""


NOBODY: Final = Nobody()


@dataclass(frozen=True)
class RoleListeners:
    """`groups`, `transactions`: the coordinators. `followers` fetches from leaders, `isr` carries proposals to the
    controller, `moves` copies to other log directories.
    """

    groups: GroupRoles = NOBODY
    transactions: CoordinatorRoles = NOBODY
    followers: FollowerRoles = NOBODY
    isr: IsrProposals = NOBODY
    moves: LogDirMoves = NOBODY
