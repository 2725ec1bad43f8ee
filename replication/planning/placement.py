"""Which brokers hold the replicas of new partitions.

Goals, in this order: replicas spread evenly; the followers of one broker's partitions spread over the others; with
racks, one replica per rack as far as it goes. Leaders go round-robin from a start broker; the further replicas of a
partition follow at a distance that grows by one each time the leaders have gone round. With racks the same is done on a
list that alternates between racks, passing over brokers of racks already used. Source: server-common's
`AdminUtils.java`.

Pure: the start is drawn from a `Random` passed in, or given. Cost: O(partitions × replicas); with racks, × brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from barnabas.kproto import ErrorCode, KafkaError

Assignments = dict[int, tuple[int, ...]]


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    rng: Random,
    *,
    start: int = -1,
    first_partition: int = 0,
) -> Assignments:
    """Replicas for `partitions` new partitions, numbered from `first_partition`; the first replica is preferred.

    brokers: live brokers, id → rack. start: index into the sorted ids for leader and distance; −1 draws both.
    Raises KafkaError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, and UNKNOWN_SERVER_ERROR if only some brokers name
    a rack, as Kafka does.
    """
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if racks and len(racks) < len(brokers):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    ring = alternate_racks(racks) if racks else sorted(brokers)
    leader_start = start if start >= 0 else rng.randrange(len(ring))
    shift = start if start >= 0 else rng.randrange(len(ring))
    result: Assignments = {}
    for partition in range(max(0, first_partition), max(0, first_partition) + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + leader_start) % len(ring)
        if racks:
            result[partition] = _across_racks(ring, racks, first, shift, replication_factor)
        else:
            followers = (_follower(first, shift, step, len(ring)) for step in range(replication_factor - 1))
            result[partition] = (ring[first], *(ring[index] for index in followers))
    return result


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Brokers so that neighbours are of different racks: {0: a, 1: a, 2: b} → [0, 2, 1]."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _across_racks(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [ring[first]]
    used_racks = {racks[ring[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = ring[_follower(first, shift * rack_count, step, len(ring))]
        step += 1
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _follower(first: int, shift: int, step: int, brokers: int) -> int:
    """Index in the ring of follower number `step`: never `first`, for brokers > 1."""
    return (first + 1 + (shift + step) % (brokers - 1)) % brokers
