"""Creating topics and adding partitions: what is allowed, and what the result will be. Pure.

`plan_creation` and `plan_expansion` check a request against the image and return what to write; they raise KafkaError
with the code that goes into the answer for that topic. The order of the checks is Kafka's (`ZkAdminManager.scala`,
`AdminZkClient.scala`), since it decides which of several mistakes is reported. Manual assignments are checked as
strictly as by newer Kafka (`ReplicationControlManager.java`): brokers must be live, lists not empty.

| mistake | code |
| --- | --- |
| topic exists, or is being deleted | TOPIC_ALREADY_EXISTS |
| bad name; or differs from an existing one only in `.` and `_` | INVALID_TOPIC_EXCEPTION |
| partitions | INVALID_PARTITIONS |
| replication factor ≤ 0 or above the number of live brokers | INVALID_REPLICATION_FACTOR |
| manual assignment: gaps, repeats, uneven, empty, unknown brokers | INVALID_REPLICA_ASSIGNMENT |
| settings: null value, unknown key, bad value | INVALID_CONFIG |
| manual assignment together with counts | INVALID_REQUEST |
| more than 10,000 new partitions at once (KIP-599's spirit; as Kafka 4.1) | POLICY_VIOLATION |

Not here: reassignment; policies of CreateTopicPolicy's kind; quotas of KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.planning.placement import Assignments, assign_replicas
from barnabas.replication.values.image import CLUSTER_METADATA_TOPIC, BrokerImage, Image

MAX_NAME_LENGTH = 249
MAX_NEW_PARTITIONS = 10_000

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

CheckConfig = Callable[[Mapping[str, str]], None]
"""Checks a topic's own settings; raises KafkaError INVALID_CONFIG."""

ManualAssignment = Sequence[tuple[int, Sequence[int]]]


class TopicRequest(NamedTuple):
    """What a client requests. −1: the broker's default. assignments: index and replicas of each, instead of counts.

    automatic: created without a CreateTopics; the log says so.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    automatic: bool = False


class TopicDefaults(NamedTuple):
    """num.partitions and default.replication.factor."""

    partitions: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to write. automatic: as in `TopicRequest`."""

    name: str
    topic_id: bytes
    assignments: Assignments
    config: Mapping[str, str] = field(default_factory=dict)
    automatic: bool = False

    @property
    def replication_factor(self) -> int:
        return len(self.assignments[0])


def extent(assignments: Sequence[Sequence[int]]) -> str:
    """A topic's partitions and replicas in words, for the log. assignments: the replicas of each partition."""
    count = len(assignments)
    factor = len(assignments[0]) if assignments else 0
    return f"{count} partition{'' if count == 1 else 's'}, replication factor {factor}"


def plan_creation(
    image: Image,
    request: TopicRequest,
    defaults: TopicDefaults,
    *,
    check_config: CheckConfig,
    rng: Random,
    reserved: Mapping[str, str] | None = None,
    deleting: Collection[str] = (),
) -> NewTopic:
    """The topic that `request` asks for. Raises KafkaError.

    reserved: topics being created, folded name (`fold`) → name. deleting: topics being deleted.
    """
    name = request.name
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    nulls = [key for key, value in request.configs if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    if request.assignments and (request.partitions != -1 or request.replication_factor != -1):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time.",
        )
    count = partition_count(request, defaults)
    if count > MAX_NEW_PARTITIONS:
        raise too_many_partitions()
    if request.assignments:
        assignments = _manual(request.assignments, image.brokers)
    else:
        factor = defaults.replication_factor if request.replication_factor == -1 else request.replication_factor
        assignments = assign_replicas(racks_of(image.brokers), count, factor, rng)
    check_name(name)
    if name in deleting:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    _check_collision(name, image.topics, reserved or {})
    config = {key: value for key, value in request.configs if value is not None}
    check_config(config)
    return NewTopic(name, new_uuid(rng), assignments, MappingProxyType(config), request.automatic)


def plan_expansion(
    image: Image, name: str, count: int, manual: Sequence[Sequence[int]] | None, *, rng: Random
) -> Assignments:
    """Replicas of the partitions to add so that the topic has `count`. Raises KafkaError.

    manual: replicas of each new partition in order, or None to place them here. New leaders follow round-robin from the
    leader of partition 0, as if the partitions had been there from the start.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if any(partition.adding_replicas or partition.removing_replicas for partition in topic.partitions):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    present = len(topic.partitions)
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {present} partitions, which is higher than the requested {count}.",
        )
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    if count - present > MAX_NEW_PARTITIONS:
        raise too_many_partitions()
    first = topic.partitions[0].replicas
    if manual is None:
        ids = sorted(image.brokers)
        start = next((index for index, broker in enumerate(ids) if broker >= first[0]), 0)
        return assign_replicas(
            racks_of(image.brokers), count - present, len(first), rng, start=start, first_partition=present
        )
    if len(manual) != count - present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {count - present} but {len(manual)} assignments provided.",
        )
    for replicas in manual:
        check_replicas(replicas, image.brokers)
        if len(replicas) != len(first):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Inconsistent replication factor between partitions, "
                f"partition 0 has {len(first)} while a new one has {len(replicas)}.",
            )
    return {present + step: tuple(replicas) for step, replicas in enumerate(manual)}


def partition_count(request: TopicRequest, defaults: TopicDefaults) -> int:
    """How many partitions the request asks for, wellformed or not."""
    if request.assignments:
        return len(request.assignments)
    return defaults.partitions if request.partitions == -1 else request.partitions


def check_total(requests: Iterable[TopicRequest], defaults: TopicDefaults) -> None:
    """Refuse a request that would create too many partitions in all of its topics together. Raises KafkaError."""
    if sum(new_partition_count(request, defaults) for request in requests) > MAX_NEW_PARTITIONS:
        raise too_many_partitions()


def new_partition_count(request: TopicRequest, defaults: TopicDefaults) -> int:
    """How many partitions the request would create."""
    return max(0, partition_count(request, defaults))


def too_many_partitions() -> KafkaError:
    """The error for more than MAX_NEW_PARTITIONS."""
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def check_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION with the reason."""
    reason = name_fault(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def name_fault(name: str) -> str | None:
    """What is wrong with a topic name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def is_prohibited(name: str) -> bool:
    """Whether no client may create the topic: the metadata log of KRaft clusters."""
    return name == CLUSTER_METADATA_TOPIC


def fold(name: str) -> str:
    """Names that fold to the same text would share their metrics, and must not coexist."""
    return name.replace(".", "_")


def new_uuid(rng: Random) -> bytes:
    """A random (version 4) UUID. Its text form does not start with '-', which command lines take for an option."""
    while True:
        value = bytearray(rng.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if value[0] >> 2 != 62:  # the first six bits; 62 is '-' in URL-safe base64
            return bytes(value)


def racks_of(brokers: Mapping[int, BrokerImage]) -> dict[int, str | None]:
    """Broker id → rack, as `assign_replicas` wants it."""
    return {broker.id: broker.rack for broker in brokers.values()}


def _manual(assignments: ManualAssignment, live: Collection[int]) -> Assignments:
    result: Assignments = {}
    for index, replicas in assignments:
        if index in result:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_replicas(replicas, live)
        result[index] = tuple(replicas)
    if sorted(result) != list(range(len(result))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    if len({len(replicas) for replicas in result.values()}) != 1:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas")
    return dict(sorted(result.items()))


def check_replicas(replicas: Sequence[int], live: Collection[int]) -> None:
    """Check a manual list of replicas. Raises KafkaError INVALID_REPLICA_ASSIGNMENT."""
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    if len(set(replicas)) != len(replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Duplicate replica assignment found: {list(replicas)}")
    unknown = sorted(set(replicas).difference(live))
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.",
        )


def _check_collision(name: str, topics: Mapping[str, object], reserved: Mapping[str, str]) -> None:
    """Existing topics are looked through one by one: 2,000 take 0.2 ms, and only names with '.' or '_' pay it."""
    folded = fold(name)
    other = reserved.get(folded)
    if other is None and ("." in name or "_" in name):
        other = next((topic for topic in topics if fold(topic) == folded), None)
    if other is None:
        return
    if other == name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {other}")
