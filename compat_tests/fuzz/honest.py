"""A client that behaves, on a broker that is attacked: what it asks must be answered, in time and rightly.

It has a topic, a group and a producer that no attacker knows, with topic settings of its own, because attackers change
the broker's. `begin` makes them; each `session` produces, fetches, commits, joins a group and more. Errors that Apache
Kafka's clients retry, as a coordinator on its way, are retried for `RETRY_S`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, decoder, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records

ANSWER_S = 30.0
RETRY_S = 30.0
PAUSE_S = 0.1
PREFIX = "honest-"
SETTINGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "max.message.bytes": "1000000",
    "min.insync.replicas": "1",
    "segment.bytes": "1048576",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# A deleted or altered topic of groups takes its memberships along; the member begins again.
BEGUN_AGAIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Wronged(Exception):
    """A valid request was not answered, or not as it should be."""


class Again(Exception):
    """An answer that a client takes for a reason to ask again."""


class Caller:
    """Asks one request after another over one connection."""

    def __init__(self, address: tuple[str, int], timeout: float = ANSWER_S) -> None:
        self._address = address
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._id = 0

    def ask(self, request: Any, version: int) -> Any:
        """The answer. Raises Wronged when there is none that can be read."""
        key = ApiKey(request.__description__.api_key)
        self._id += 1
        begun = time.monotonic()
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._timeout)
            self._socket.settimeout(self._timeout)
            self._socket.sendall(request_frame(version, self._id, "honest", request))
            (size,) = struct.unpack(">i", self._exactly(4))
            frame = self._exactly(size)
            _, offset = parse_response_header(key, version, frame)
            return decoder(response_class(key), version)(frame, offset)[0]
        except (OSError, EOFError) as error:
            self.close()
            waited = time.monotonic() - begun
            raise Wronged(f"{key.name} v{version} was not answered within {waited:.1f} s: {error!r}") from error

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError("closed by the broker")
            data += piece
        return bytes(data)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Honest:
    """See the module. Of several brokers it asks the next whenever one says that it is not the one. `replicas`: of its
    topic.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], name: str, replicas: int = 1, timeout: float = ANSWER_S
    ) -> None:
        self._callers = [Caller(address, timeout) for address in addresses]
        self.topic = PREFIX + name
        self.group = PREFIX + name
        self._replicas = replicas
        self._written: list[bytes] = []
        self._rounds = 0
        self._producer = (-1, -1)

    def begin(self) -> None:
        """Make the topic, and wait until groups and transactions have their coordinators."""
        self._again(lambda: self._create(self.topic))
        for kind in (0, 1):
            self._again(lambda kind=kind: self._coordinator(kind))  # type: ignore[misc]
        self._again(self._init_producer)

    def session(self) -> None:
        """One of everything. Raises Wronged."""
        self._rounds += 1
        self._expect(self.caller.ask(ApiVersionsRequest(), 0).error_code, "ApiVersions")
        # Anew for each session: a batch that was written, but not answered rightly, must not make the next a duplicate.
        self._again(self._init_producer)
        self._produce()
        self._fetch(len(self._written) - 1)
        self._offsets()
        self._again(self._commit)
        self._again(self._member)
        topic = next(
            (
                one
                for one in self.caller.ask(self._metadata(), 9).topics
                if one.name == self.topic and not one.error_code
            ),
            None,
        )
        if topic is None or len(topic.partitions) != 1:
            raise Wronged(f"Metadata does not show {self.topic}: {topic}")
        if self._rounds % 5 == 0:
            name = f"{self.topic}-{self._rounds}"
            self._again(lambda: self._create(name))
            self._again(lambda: self._delete(name))

    def last(self) -> None:
        """Everything that was written is there."""
        self._fetch(0)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    @property
    def caller(self) -> Caller:
        """To the broker whose turn it is."""
        return self._callers[0]

    # -- steps -------------------------------------------------------------------------------------------------------

    def _again(self, step: Callable[[], None]) -> None:
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return step()
            except Again as reason:
                if time.monotonic() > deadline:
                    raise Wronged(f"for {RETRY_S:.0f} s: {reason}") from None
                self._callers.append(self._callers.pop(0))
                time.sleep(PAUSE_S / len(self._callers))
                # As clients do: it also makes the topic of the coordinators again if somebody has deleted it.
                self.caller.ask(FindCoordinatorRequest(key=self.group, key_type=0), 2)

    def _expect(self, code: int, what: str, *allowed: int) -> None:
        if code in RETRIED:
            raise Again(f"{what} is answered with {ErrorCode(code).name}")
        if code and code not in allowed:
            raise Wronged(f"{what} is answered with {ErrorCode(code).name}")

    def _metadata(self) -> Any:
        return MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )

    def _create(self, name: str) -> None:
        settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in SETTINGS.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=self._replicas, configs=settings
        )
        answer = self.caller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5)
        self._expect(answer.topics[0].error_code, "CreateTopics", ErrorCode.TOPIC_ALREADY_EXISTS)

    def _delete(self, name: str) -> None:
        answer = self.caller.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=20_000), 4)
        code = answer.responses[0].error_code
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._expect(code, "DeleteTopics")

    def _coordinator(self, kind: int) -> None:
        answer = self.caller.ask(FindCoordinatorRequest(key=self.group, key_type=kind), 2)
        self._expect(answer.error_code, "FindCoordinator")

    def _init_producer(self) -> None:
        answer = self.caller.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        self._expect(answer.error_code, "InitProducerId")
        if answer.producer_id < 0:
            raise Wronged(f"InitProducerId gives {answer.producer_id}")
        self._producer = (answer.producer_id, answer.producer_epoch)

    def _produce(self) -> None:
        value = b"%d" % len(self._written)
        record = Record(0, int(time.time() * 1000), b"k", value)
        batch = build_batch([record], producer_id=self._producer[0], producer_epoch=self._producer[1], base_sequence=0)
        partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])

        def attempt() -> None:
            answer = self.caller.ask(request, 9).responses[0].partition_responses[0]
            self._expect(answer.error_code, "Produce")
            if answer.base_offset != len(self._written):
                raise Wronged(f"Produce gives offset {answer.base_offset}, {len(self._written)} is next")

        self._again(attempt)
        self._written.append(value)

    def _fetch(self, offset: int) -> None:
        found: list[bytes | None] = []
        while len(found) < len(self._written) - offset:
            got = self._fetched(offset + len(found))
            if not got:
                raise Wronged(f"Fetch of {self.topic} finds {len(found)} of {len(self._written) - offset} records")
            found += got
        if found != self._written[offset:]:
            raise Wronged(f"Fetch of {self.topic} from {offset} gives other records than were written")

    def _fetched(self, offset: int) -> list[bytes | None]:
        partition = FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 24,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[partition])],
        )
        got: list[bytes | None] = []

        def attempt() -> None:
            answer = self.caller.ask(request, 11)
            self._expect(answer.error_code, "Fetch")
            found = answer.responses[0].partitions[0]
            self._expect(found.error_code, "Fetch of a partition")
            data = bytes(found.records or b"")
            for at, _ in iter_headers(data):
                got.extend(record.value for record in iter_records(data, at) if record.offset >= offset)

        self._again(attempt)
        return got

    def _offsets(self) -> None:
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])

        def attempt() -> None:
            found = self.caller.ask(request, 5).topics[0].partitions[0]
            self._expect(found.error_code, "ListOffsets")
            if found.offset != len(self._written):
                raise Wronged(f"ListOffsets tells {found.offset}, {len(self._written)} is the end")

        self._again(attempt)

    def _commit(self, member_id: str = "", generation: int = -1) -> None:
        group = f"{self.group}-simple" if generation < 0 else self.group
        wanted = len(self._written)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=wanted)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=self.topic, partitions=[partition])
        commit = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
        )
        code = self.caller.ask(commit, 7).topics[0].partitions[0].error_code
        if code in BEGUN_AGAIN:
            raise Again("OffsetCommit: the group forgot its member")
        self._expect(code, "OffsetCommit")
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])
        answer = self.caller.ask(OffsetFetchRequest(group_id=group, topics=[asked]), 5)
        self._expect(answer.error_code, "OffsetFetch")
        found = answer.topics[0].partitions[0]
        self._expect(found.error_code, "OffsetFetch of a partition")
        if found.committed_offset != wanted:
            raise Wronged(f"OffsetFetch tells {found.committed_offset}, {wanted} was committed")

    def _member(self) -> None:
        """A life in a group: join, sync, heartbeat, commit, leave."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = self.caller.ask(join, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            join.member_id = joined.member_id
            joined = self.caller.ask(join, 5)
        if joined.error_code in BEGUN_AGAIN:
            raise Again("JoinGroup: the group forgot its member")
        self._expect(joined.error_code, "JoinGroup")
        mine = {"group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        part = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = self.caller.ask(SyncGroupRequest(assignments=[part], **mine), 3)
        if synced.error_code in BEGUN_AGAIN:
            raise Again("SyncGroup: the group forgot its member")
        self._expect(synced.error_code, "SyncGroup")
        if synced.assignment != b"mine":
            raise Wronged(f"SyncGroup gives {synced.assignment!r}")
        beat = self.caller.ask(HeartbeatRequest(**mine), 3).error_code
        if beat in BEGUN_AGAIN:
            raise Again("Heartbeat: the group forgot its member")
        self._expect(beat, "Heartbeat")
        self._commit(joined.member_id, joined.generation_id)
        leaving = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        left = self.caller.ask(LeaveGroupRequest(group_id=self.group, members=[leaving]), 3)
        self._expect(left.error_code, "LeaveGroup")
