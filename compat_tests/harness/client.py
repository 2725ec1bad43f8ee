"""What the shared cases ask of a client library, and the values they see: one adapter per library stands behind it.

An adapter does everything through its library's own, ordinary calls; it only renames. A broker's refusal surfaces as
`Refused` with Kafka's error number, whatever exception the library raises for it. Times are seconds unless named `_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

Header = tuple[str, bytes | None]
Partition = tuple[str, int]
SESSION_MS = 30_000
"""Of a member, unless a case says otherwise: one that stands still for some seconds is still in its group."""

# Kafka's error numbers the cases look for.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
INVALID_TIMESTAMP = 32
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
POLICY_VIOLATION = 44
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_TRANSACTION_TIMEOUT = 50
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86
INVALID_RECORD = 87
PRODUCER_FENCED = 90


class Refused(Exception):
    """The broker answered with an error. *code* is Kafka's number."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Message(NamedTuple):
    """A record to send; *timestamp_ms* None lets the client choose, *partition* None as well."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class Record(NamedTuple):
    """A record as read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Delivered(NamedTuple):
    """Where a sent record landed (offset -1 with acks=0)."""

    partition: int
    offset: int


class Replicas(NamedTuple):
    """A partition as metadata shows it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Member(NamedTuple):
    """A member of a described group."""

    client_id: str
    assignment: frozenset[Partition]


class Group(NamedTuple):
    """A described group; the state in Kafka's spelling, such as `Stable`."""

    state: str
    members: tuple[Member, ...]


class Cluster(NamedTuple):
    """A described cluster."""

    cluster_id: str | None
    controller: int
    brokers: dict[int, tuple[str, int]]


class Consumer(Protocol):
    """A consumer of a library, with automatic commits off."""

    def poll(self, timeout: float) -> list[Record]:
        """Return what has arrived, waiting up to *timeout* for the first. Raises Refused."""

    def assignment(self) -> set[Partition]:
        """Return the partitions this member holds now."""

    def reassign(self, partitions: Sequence[Partition]) -> None:
        """Take these partitions instead of the present ones, and read them from the beginning."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from *offset*."""

    def position(self, partition: Partition) -> int:
        """Return the offset of the next record."""

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        """Return the log start offset and the end offset, asked from the broker."""

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        """Return the first offset whose record is not older, None when there is none."""

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commit *offsets*, or the current positions; waits for the answer. Raises Refused."""

    def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset as the broker says it."""

    def membership(self) -> object:
        """Return what shows that this is a member of the group's present generation, for `Transactor.send_offsets`."""

    def close(self) -> None:
        """Leave the group and close."""


class Transactor(Protocol):
    """A producer with a transactional id, known to the coordinator. Every call waits for its end."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, messages: Iterable[Message]) -> list[Delivered]:
        """Send all within the transaction and wait for all answers. Raises Refused for the first refused one."""

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, membership: object = None) -> None:
        """Commit *offsets* for *group* within the transaction, as the member that `Consumer.membership` was of. Raises
        Refused.
        """

    def commit(self) -> None:
        """Commit the transaction. Raises Refused; a client that was fenced says PRODUCER_FENCED."""

    def abort(self) -> None:
        """Abort the transaction. Raises Refused."""

    def close(self) -> None:
        """Go away, without a word about an open transaction."""


class Client(Protocol):
    """A client library bound to one broker.

    `lacks` names what the library cannot do at all and why: names of methods here, or of features cases ask for.
    """

    name: str
    lacks: Mapping[str, str]

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        acks: Literal[0, 1, -1] = -1,
        idempotent: bool = False,
        codec: str | None = None,
        batch_bytes: int = 16384,
        linger_ms: int = 5,
        max_request_bytes: int = 4_000_000,
        fresh: bool = False,
    ) -> list[Delivered]:
        """Send all, wait for all answers, in the order of *messages*. Raises Refused for the first refused one.

        An adapter may keep a producer for equal options of one thread; *fresh* asks for one that knows nothing yet and
        is gone afterwards.
        """

    def consumer(
        self,
        *,
        assign: Sequence[Partition] = (),
        subscribe: Sequence[str] = (),
        pattern: str | None = None,
        group: str | None = None,
        instance: str | None = None,
        client_id: str | None = None,
        assignor: str = "range",
        reset: Literal["earliest", "latest"] = "earliest",
        session_timeout_ms: int = SESSION_MS,
        fetch_max_bytes: int | None = None,
        partition_max_bytes: int | None = None,
        max_wait_ms: int = 100,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> Consumer:
        """Open a consumer: either of assigned partitions, or as a member of *group* by subscription."""

    def transactor(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        codec: str | None = None,
        batch_bytes: int = 16384,
        linger_ms: int = 5,
    ) -> Transactor:
        """Open a transactional producer; that aborts what an earlier one of the same id left open. Raises Refused."""

    def reader(self) -> Consumer:
        """Return a consumer without a group, to be reassigned by who wants to read a topic; the client closes it."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def delete_topic(self, name: str) -> None: ...
    def create_partitions(self, topic: str, total: int) -> None: ...
    def topics(self) -> set[str]: ...
    def describe_topic(self, name: str) -> dict[int, Replicas]: ...
    def leaders_answer(self, partitions: Sequence[Partition]) -> bool: ...
    def describe_cluster(self) -> Cluster: ...
    def topic_config(self, name: str) -> dict[str, str | None]: ...
    def broker_config(self, broker: int) -> dict[str, str | None]: ...
    def alter_topic_config(
        self, name: str, *, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None: ...
    def delete_records(self, partition: Partition, before_offset: int) -> int: ...
    def max_timestamp_offset(self, partition: Partition) -> int: ...
    def groups(self) -> set[str]: ...
    def describe_group(self, group: str) -> Group: ...
    def delete_group(self, group: str) -> None: ...
    def group_offsets(self, group: str) -> dict[Partition, int]: ...
    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None: ...
    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None: ...
    def close(self) -> None: ...


def now_ms() -> int:
    """Return the wall clock as record timestamps have it."""
    return int(time.time() * 1000)


def positions(topic: str, count: int) -> list[Partition]:
    """Return the partitions 0..count-1 of a topic."""
    return [(topic, index) for index in range(count)]
