"""Several brokers' replicas of partitions on logs in memory, without network: records move by Fetch requests that go
through the codec, and the controller is the test.

The clock is a number in the test's hand. Wishes for another ISR are collected in `wishes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.kproto import ErrorCode, KafkaError, decode, encode, encoder, request_class, response_class
from barnabas.kproto.messages import FetchRequest
from barnabas.kproto.records import Record, build_batch, iter_records
from barnabas.logdir import AppendOrigin, FileSlice, LogConfig, LogDirs
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.replication import BrokerImage, Endpoint, Image, PartitionImage, Proposal, TopicImage
from barnabas.server.apis.records import fetch as fetch_api
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.partitions.roles import RoleListeners
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.fetch.sessions import FetchSessions
from barnabas.server.tests.apis.fakes import at_once

NOW = 1_763_700_000_000
TOPIC = "t"
TOPIC_ID = bytes(15) + b"\7"


class Answer:
    """A request's context: the answer, once it is there. `response` went through the codec."""

    def __init__(self, api: Api, version: int) -> None:
        self.connection = self  # whose sessions are counted
        self.api = api
        self.api_version = version
        self.client_id = "test"
        self.client_host = "127.0.0.1"
        self.listener = "PLAINTEXT"
        self.correlation_id = 1
        self.closed = False
        self.response: Any = None

    def reply(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        kind = response_class(self.api.key)
        parts: list[Any] = list(encoder(kind, self.api_version)(response))
        data = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts)
        self.response = decode(kind, self.api_version, data)

    def on_close(self, callback: Callable[[], None]) -> None:
        pass

    @property
    def only(self) -> Any:
        """The only partition of the answer."""
        assert self.response is not None, "not answered yet"
        assert self.response.error_code == 0, self.response
        return self.response.responses[0].partitions[0]


class FakeTimers:
    def __init__(self, world: ReplicaWorld) -> None:
        self._world = world
        self.due: list[tuple[float, Any]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", None)
        self.due.append((self._world.seconds + seconds, timer))
        return timer


class Replicas:
    """One broker."""

    def __init__(self, world: ReplicaWorld, broker_id: int, log_dirs: LogDirs, settings: dict[str, str]) -> None:
        self.world = world
        self.id = broker_id
        self.partitions = Partitions(
            broker_id,
            log_dirs,
            lambda config: world.log_config,
            lambda: world.image,
            now=lambda: world.seconds,
            wall_ms=lambda: NOW,
            lag_ms=lambda: world.lag_ms,
        )
        self.partitions.listen(RoleListeners(isr=SimpleNamespace(submit=lambda *wish: world.wishes.append(wish))))
        self.timers = FakeTimers(world)
        values = {"broker.id": str(broker_id), "log.dirs": log_dirs.dirs[0].path, **settings}
        config = BrokerConfig.from_values(values)
        self.svc: Any = SimpleNamespace(
            quotas=SimpleNamespace(limits_requests=False),
            partitions=self.partitions,
            fetch_sessions=FetchSessions(1000, Random(broker_id)),
            timers=self.timers,
            config=config,
            now=lambda: world.seconds,
            wall_ms=lambda: NOW,
        )

    @property
    def replica(self) -> Partition:
        """Its replica of the only partition."""
        return self.partitions.get(TOPIC, 0)

    def ask(self, api: Api, request: Any, version: int) -> Answer:
        """Have this broker handle a request; the answer may still be owed."""
        answer = Answer(api, version)
        asked = decode(request_class(api.key), version, encode(request, version))
        self.svc.image = self.world.image
        try:
            response = at_once(api.handle(self.svc, answer, asked))  # type: ignore[arg-type]
        except KafkaError as error:
            assert api.on_error is not None
            response = api.on_error(asked, error.code, version)
        if response is not PENDING:
            answer.reply(response)
        return answer

    def append(self, *values: bytes, acks: int = 1) -> int:
        """One batch from a client; the offset after it."""
        batch = build_batch([Record(0, NOW, None, value) for value in values])
        info = self.replica.append(batch, origin=AppendOrigin.CLIENT, now_ms=NOW, required_acks=acks)
        self.partitions.write_staged()
        return info.last_offset + 1

    def commit(self, offset: int) -> list[ErrorCode]:
        """Where the outcome of waiting for `offset` will be."""
        outcome: list[ErrorCode] = []
        self.replica.when_committed(offset, outcome.append)
        return outcome

    def values(self) -> list[bytes | None]:
        """All records of the log."""
        log = self.replica.log
        end = log.log_end_offset
        found: list[bytes | None] = []
        piece = log.read(log.log_start_offset, 1 << 20, upper_offset=end, min_one_batch=True)
        data = b"" if piece is None else piece.read()
        position = 0
        while position < len(data):
            found += [record.value for record in iter_records(data, position)]
            position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
        return found


class ReplicaWorld:
    """See the module. Brokers are numbered from 1."""

    def __init__(self, stack: ExitStack, directory: Path, brokers: int, settings: dict[str, str]) -> None:
        self.seconds = 1000.0
        self.lag_ms = 30_000
        self.log_config = LogConfig()
        self.wishes: list[tuple[Partition, Proposal]] = []
        self.failures: list[KafkaError] = []
        ids = range(1, brokers + 1)
        images = {
            each: BrokerImage(each, (Endpoint("PLAINTEXT", f"host{each}", 9000 + each),), rack=f"rack{each}")
            for each in ids
        }
        self.state = PartitionImage(0, -1, -1, -1, tuple(ids), tuple(ids))
        self.image = Image(brokers=images)
        self._show()
        self.brokers: dict[int, Replicas] = {}
        for each in ids:
            log_dirs = LogDirs([f"{directory}/{each}"], disk=MemoryDisk(), wall_ms=lambda: NOW, random=lambda: 0.0)
            log_dirs.open()
            stack.callback(log_dirs.close)
            log_dirs.check_identity(cluster_id="test", node_id=each)
            log_dirs.load(lambda topic: self.log_config)
            self.brokers[each] = Replicas(self, each, log_dirs, settings)

    def __getitem__(self, broker_id: int) -> Replicas:
        return self.brokers[broker_id]

    def _show(self) -> None:
        self.image = self.image.with_topics([TopicImage(TOPIC, TOPIC_ID, (self.state,))])

    def lead(self, leader: int, *isr: int, tell: bool = True, replicas: tuple[int, ...] = ()) -> None:
        """A new leader epoch: `leader` leads, and all brokers are notified."""
        self.state = replace(
            self.state,
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
            isr=isr or self.state.isr,
            replicas=replicas or self.state.replicas,
        )
        self._show()
        if tell:
            for broker_id in self.state.replicas:
                self.tell(broker_id)

    def tell(self, broker_id: int) -> None:
        """LeaderAndIsr for one broker."""
        partitions = self[broker_id].partitions
        if broker_id == self.state.leader:
            partitions.become_leader(TOPIC, TOPIC_ID, self.state, {})
        else:
            leader = self.image.brokers.get(self.state.leader)
            partitions.become_follower(TOPIC, TOPIC_ID, self.state, {}, leader)

    def kill(self, broker_id: int) -> None:
        """The image shows it no more."""
        brokers = dict(self.image.brokers)
        del brokers[broker_id]
        self.image = self.image.with_brokers(brokers)

    def grant(self) -> None:
        """The controller accepts all proposals."""
        wishes, self.wishes = self.wishes, []
        for partition, proposal in wishes:
            self.state = replace(self.state, isr=proposal.isr, partition_epoch=self.state.partition_epoch + 1)
            self._show()
            partition.isr_accepted(proposal, self.state.isr, self.state.leader_epoch, self.state.partition_epoch)

    def fetch(self, follower: int, *, version: int = 17, wait_ms: int = 0, leader: int = 0, **fields: Any) -> Answer:
        """A follower's fetch from the leader."""
        replica = self[follower].replica
        epoch = replica.leader_epoch
        asked = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=replica.log_end_offset,
            last_fetched_epoch=replica.log.latest_epoch if version >= 12 else -1,
            log_start_offset=replica.log_start_offset,
            partition_max_bytes=1 << 20,
        )
        for name in list(fields):
            if name in FetchRequest.FetchPartition.__slots__:
                setattr(asked, name, fields.pop(name))
        topic = FetchRequest.FetchTopic(partitions=[asked])
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.topic = TOPIC
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=10 << 20, topics=[topic], **fields)
        if version >= 15:
            request.replica_state = FetchRequest.ReplicaState(replica_id=follower, replica_epoch=77)
        else:
            request.replica_id = follower
        return self[leader or self.state.leader].ask(fetch_api.API, request, version)

    def take(self, follower: int, answer: Answer) -> None:
        """Append what the leader answered."""
        data = answer.only
        assert data.error_code == 0, ErrorCode(data.error_code)
        replica = self[follower].replica
        records = memoryview(bytearray(data.records or b""))
        replica.append_as_follower(records, replica.leader_epoch, data.high_watermark, data.log_start_offset)

    def replicate(self, *followers: int) -> None:
        """Each fetches and takes what there is, once."""
        for follower in followers:
            self.take(follower, self.fetch(follower))

    def expire(self) -> None:
        """All timers that are due by now fire."""
        for broker in self.brokers.values():
            due, broker.timers.due = broker.timers.due, []
            for at, timer in due:
                if at > self.seconds:
                    broker.timers.due.append((at, timer))
                elif timer.callback is not None:
                    timer.callback()


@contextmanager
def replica_world(directory: Path, *, brokers: int = 3, **settings: str) -> Iterator[ReplicaWorld]:
    """Brokers 1 to `brokers` with a replica each of partition 0; none leads yet. Settings with `_` for `.`."""
    with ExitStack() as stack:
        yield ReplicaWorld(stack, directory, brokers, {key.replace("_", "."): text for key, text in settings.items()})


def offsets(world: ReplicaWorld, broker: int) -> tuple[int, int]:
    replica = world[broker].replica
    return replica.high_watermark, replica.log_end_offset


def consume(
    world: ReplicaWorld, broker: int, offset: int = 0, *, version: int = 12, wait_ms: int = 0, rack: str = "",
    epoch: int = -1,
) -> Answer:  # fmt: skip
    asked = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchRequest.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[asked])
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic], rack_id=rack)
    return world[broker].ask(fetch_api.API, request, version)
