"""Leader election: four pure functions, one per occasion, and the state a new partition starts with.

Each takes the partition and the set of live brokers, and returns the partition with its new leader, ISR and leader
epoch, or None if no replica can lead. The leader epoch rises by one each time. Source: `Election.scala` and
`PartitionLeaderElectionAlgorithms` (core, 3.9).

| occasion | who | ISR |
| --- | --- | --- |
| offline | first replica live and in ISR | its live members |
| offline, unclean allowed | else the first live replica | the leader alone, which has to recover |
| reassign | first of the target replicas live and in ISR | unchanged |
| preferred | the first replica, if live and in ISR | unchanged |
| shutdown | first replica live, in ISR and not shutting down | without those shutting down |

`lose_brokers` is what happens to a partition whose replicas die without an election that could help.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from barnabas.replication.values.image import NO_LEADER, PartitionImage


def initial(partition: PartitionImage, live: Collection[int]) -> PartitionImage | None:
    """A new partition: epoch 0, led by the first live replica, ISR = the live replicas. None if none is live."""
    alive = tuple(replica for replica in partition.replicas if replica in live)
    return replace(partition, leader=alive[0], leader_epoch=0, partition_epoch=0, isr=alive) if alive else None


def offline(partition: PartitionImage, live: Collection[int], *, unclean: bool) -> PartitionImage | None:
    """A leader for a partition whose leader is gone."""
    for replica in partition.replicas:
        if replica in live and replica in partition.isr:
            return _led_by(partition, replica, tuple(r for r in partition.isr if r in live))
    if unclean:
        for replica in partition.replicas:
            if replica in live:
                return replace(_led_by(partition, replica, (replica,)), recovering=True)
    return None


def reassign(partition: PartitionImage, target: Sequence[int], live: Collection[int]) -> PartitionImage | None:
    """A leader out of `target` for a partition whose leader is to lose its replica."""
    for replica in target:
        if replica in live and replica in partition.isr:
            return _led_by(partition, replica, partition.isr)
    return None


def preferred(partition: PartitionImage, live: Collection[int]) -> PartitionImage | None:
    """The first replica as leader."""
    return reassign(partition, partition.replicas[:1], live)


def controlled_shutdown(
    partition: PartitionImage, live: Collection[int], stopping: Collection[int]
) -> PartitionImage | None:
    """A leader before the present one stops. live: with those stopping."""
    for replica in partition.replicas:
        if replica in live and replica in partition.isr and replica not in stopping:
            return _led_by(partition, replica, tuple(r for r in partition.isr if r not in stopping))
    return None


def lose_brokers(partition: PartitionImage, live: Collection[int]) -> PartitionImage:
    """Dead brokers leave the ISR, all but the last one; a dead leader leaves none. The same object if nothing changes.

    The last member stays, for it alone is known to have everything: the partition waits for it. The leader
    epoch rises even where the leader stays, as under a ZooKeeper-mode controller.
    """
    isr = tuple(replica for replica in partition.isr if replica in live) or partition.isr[-1:]
    leader = partition.leader if partition.leader in live else NO_LEADER
    if isr == partition.isr and leader == partition.leader:
        return partition
    return _led_by(partition, leader, isr)


def leave_isr(partition: PartitionImage, leaving: Collection[int]) -> PartitionImage:
    """Replicas leave the ISR, all but its last member; one that led leaves no leader. The same object if none is in."""
    if not any(replica in leaving for replica in partition.isr):
        return partition
    isr = tuple(replica for replica in partition.isr if replica not in leaving) or partition.isr[-1:]
    leader = NO_LEADER if partition.leader in leaving else partition.leader
    return partition if (isr, leader) == (partition.isr, partition.leader) else _led_by(partition, leader, isr)


def again(partition: PartitionImage) -> PartitionImage:
    """The same leader and ISR with a new leader epoch, so that the replicas apply their assignment again."""
    return _led_by(partition, partition.leader, partition.isr)


def _led_by(partition: PartitionImage, leader: int, isr: tuple[int, ...]) -> PartitionImage:
    return replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr)
