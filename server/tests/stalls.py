"""How long single requests hold the loop: a broker in this process, a client in a thread, the longest run of the loop.

    python -m barnabas.server.tests.stalls                     # all requests, three times each
    python -m barnabas.server.tests.stalls --only delete -n 5  # those whose name has "delete" in it
    python -m barnabas.server.tests.stalls --only fetch --stacks  # and what takes the time

Milliseconds of the loop's thread between two looks at its sockets, the smallest of the maxima of all rounds: `cpu` is
what the machine's other work cannot change, `wall` counts waiting for disk and interpreter too. `step` names the task
that took most of it. Nothing here is a test: a test counts turns and calls, not time.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.kproto import ApiKey, ErrorCode, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from barnabas.server.runtime.offload import in_thread
from barnabas.server.testing import embedded_broker

_ATTEMPTS = 50


class Loop(trio.abc.Instrument):
    """Times each run of the loop, from the look at its sockets to the next one, and each step of a task in it."""

    def __init__(self) -> None:
        self.steps = 0
        self.in_step = False
        self.thread = threading.get_ident()
        self.slowest: list[str] = []
        self._samples: list[tuple[int, str]] = []
        self.reset()

    def reset(self) -> None:
        self.cpu = self.wall = 0.0
        self.step = 0.0
        self.name = ""
        self.slowest = []
        self._began = self._began_wall = self._stepped = -1.0

    def after_io_wait(self, timeout: float) -> None:
        self._began, self._began_wall = time.thread_time(), time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        if self._began >= 0:
            self.cpu = max(self.cpu, time.thread_time() - self._began)
            self.wall = max(self.wall, time.perf_counter() - self._began_wall)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._samples.clear()
        self.steps += 1
        self.in_step = True
        self._stepped = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._stepped
        self.in_step = False
        if self._stepped >= 0 and took > self.step:
            self.step, self.name = took, task.name.rpartition(".")[2]
            self.slowest = [sample for number, sample in self._samples if number == self.steps]

    def sample(self) -> None:
        """Look, every other millisecond, where the loop's thread is. Runs in a thread of its own for ever."""
        while True:
            time.sleep(0.002)
            number = self.steps
            frame = sys._current_frames().get(self.thread)
            calls = []
            while frame is not None and self.in_step and len(calls) < 8:
                calls.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}")
                frame = frame.f_back
            if calls:
                self._samples.append((number, " < ".join(calls)))


class Client:
    """Asks over TCP in a thread. Frames are made beforehand, and answers only looked into where they are wanted."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))

    def ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        parts = bytearray(size)
        view = memoryview(parts)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError("the broker closed the connection")
            view = view[got:]
        return bytes(parts)

    def call(self, request: Any, version: int) -> Any:
        frame = self.ask(request_frame(version, 1, "stalls", request))
        key = ApiKey(request.__description__.api_key)
        _, offset = parse_response_header(key, version, frame)
        return decode(response_class(key), version, frame, offset)


@dataclass
class Case:
    """One request; `before` and `after` are asked around each of its rounds, and not timed."""

    name: str
    request: Callable[[], Any]
    version: int
    before: Callable[[Client], Any] | None = None
    after: Callable[[Client], Any] | None = None
    rounds: list[tuple[float, float, float, str]] = field(default_factory=list)


def _names(count: int, prefix: str = "nobody") -> list[str]:
    return [f"{prefix}-{number:05}" for number in range(count)]


def _create(names: Iterable[str], partitions: int = 1, **more: Any) -> Any:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=120_000, **more)


def _delete(names: Iterable[str]) -> Any:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=120_000)


def _made(names: list[str], partitions: int = 1) -> Callable[[Client], Any]:
    def make(client: Client) -> None:
        for first in range(0, len(names), 1000):
            client.call(_create(names[first : first + 1000], partitions), 7)

    return make


def _gone(names: list[str]) -> Callable[[Client], Any]:
    return lambda client: client.call(_delete(names), 6)


def _fetch(count: int, topics: int = 1) -> Any:
    asked = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[FetchRequest.FetchPartition(partition=index) for index in range(count // topics)],
        )
        for name in _names(topics)
    ]
    return FetchRequest(topics=asked, max_wait_ms=0, session_epoch=-1)


def _list_offsets(names: list[str], timestamp: int) -> Any:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
            for name in names
        ],
    )


def _add_partitions(transactions: int) -> Any:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="nobody", partitions=[0])
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=1, producer_epoch=0, verify_only=True, topics=[topic]
            )
            for name in _names(transactions)
        ]
    )


def _alter_dirs(count: int) -> Any:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="nobody", partitions=list(range(count)))
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/x", topics=[topic])])


def _settings(resources: int, each: int, name: Callable[[int], str]) -> Any:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=2,
                resource_name=topic,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=name(number), config_operation=0, value="1000")
                    for number in range(each)
                ],
            )
            for topic in _names(resources, "kept")
        ],
        validate_only=False,
    )


def _old_settings(resources: int) -> Any:
    return AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=2,
                resource_name=topic,
                configs=[AlterConfigsRequest.AlterableConfig(name="retention.ms", value="1000")],
            )
            for topic in _names(resources, "kept")
        ]
    )


def _commit(client: Client) -> None:
    for number in range(40):
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="parts",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata=""
                )
                for index in range(number * 250, number * 250 + 250)
            ],
        )
        for _ in range(_ATTEMPTS):
            answer = client.call(OffsetCommitRequest(group_id="group", topics=[topic]), 8)
            code = answer.topics[0].partitions[0].error_code
            if code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, 14):
                break
            client.call(FindCoordinatorRequest(key="group"), 0)
            time.sleep(0.1)


def _reassign(names: list[str]) -> Any:
    topics = [
        AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=name,
            partitions=[AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[0])],
        )
        for name in names
    ]
    return AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=topics)


def _grow(names: list[str], count: int, **more: Any) -> Any:
    topics = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count) for name in names]
    return CreatePartitionsRequest(topics=topics, timeout_ms=60_000, **more)


NEW = _names(1000, "new")
KEPT = _names(3000, "kept")
OLD = _names(3000, "old")

CASES = [
    Case("create 10,000 validate only", lambda: _create(_names(10_000), validate_only=True), 7),
    Case("create 1,000", lambda: _create(NEW), 7, after=_gone(NEW)),
    Case("create one of 3,000 partitions", lambda: _create(["large"], 3000), 7, after=_gone(["large"])),
    Case("delete 3,000", lambda: _delete(OLD), 6, before=_made(OLD)),
    Case("delete 30,000 unknown", lambda: _delete(_names(30_000)), 6),
    Case("delete one of 3,000 partitions", lambda: _delete(["large"]), 6, before=_made(["large"], 3000)),
    Case("expand 1,000", lambda: _grow(NEW, 3), 3, before=_made(NEW), after=_gone(NEW)),
    Case("expand 3,000 validate only", lambda: _grow(KEPT, 3, validate_only=True), 3),
    Case("list offsets by time, 3,000", lambda: _list_offsets(KEPT, 5), 8),
    Case("list offsets greatest time, 3,000", lambda: _list_offsets(KEPT, -3), 8),
    Case("list offsets latest, 30,000 unknown", lambda: _list_offsets(_names(30_000), -1), 8),
    Case("fetch 90,000 unknown", lambda: _fetch(90_000), 12),
    Case("fetch 45,000 unknown topics", lambda: _fetch(45_000, 45_000), 12),
    Case("describe topic partitions, 90,000 unknown", lambda: _describe_topics(90_000), 0),
    Case("metadata of all, 3,000", lambda: MetadataRequest(topics=None), 12),
    Case("add partitions to txn v4, 30,000", lambda: _add_partitions(30_000), 4),
    Case("alter replica log dirs, 90,000", lambda: _alter_dirs(90_000), 2),
    Case("alter settings, 9 x 10,000 same", lambda: _settings(9, 10_000, lambda n: "retention.ms"), 1),
    Case("alter settings, 9 x 10,000 unknown", lambda: _settings(9, 10_000, lambda n: f"no.{n}"), 1),
    Case("alter settings, 3,000 x 1", lambda: _settings(3000, 1, lambda n: "retention.ms"), 1),
    Case("alter settings, 1 x 10,000", lambda: _settings(1, 10_000, lambda n: f"no.{n}"), 1),
    Case("replace settings, 3,000 x 1", lambda: _old_settings(3000), 2),
    Case("offset fetch, all 10,000 of a group", lambda: _offset_fetch(), 8),
    Case("reassign 3,000", lambda: _reassign(KEPT), 0),
    Case("elect leaders, all of 3,000", lambda: ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), 2),
    Case("describe configs of 3,000", lambda: _describe_configs(KEPT), 4),
    Case("describe log dirs", lambda: DescribeLogDirsRequest(topics=None), 4),
]


def _describe_topics(count: int) -> Any:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in _names(count)]
    )


def _offset_fetch() -> Any:
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="group", topics=None)])


def _describe_configs(names: list[str]) -> Any:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name) for name in names
        ]
    )


def _run(client: Client, loop: Loop, cases: list[Case], rounds: int, stacks: bool, token: Any) -> None:
    if any(("one of" not in case.name and "3,000" in case.name) or "settings" in case.name for case in cases):
        _made(KEPT)(client)
    if any(case.name.startswith("offset fetch") for case in cases):
        client.call(_create(["parts"], 10_000), 7)
        _commit(client)
    print(f"{'ms':42} {'cpu':>6} {'wall':>7} {'step':>6}")
    for case in cases:
        frame = request_frame(case.version, 1, "stalls", case.request())
        for number in range(rounds + 1):  # the first compiles the codecs
            if case.before is not None:
                case.before(client)
            time.sleep(0.1)
            trio.from_thread.run_sync(loop.reset, trio_token=token)
            client.ask(frame)
            if number:
                case.rounds.append((loop.cpu * 1e3, loop.wall * 1e3, loop.step * 1e3, loop.name))
            if case.after is not None:
                case.after(client)
        cpu, wall = (min(column) for column in list(zip(*case.rounds, strict=True))[:2])
        step = min(case.rounds, key=lambda each: each[2])
        print(f"{case.name:42} {cpu:6.1f} {wall:7.1f} {step[2]:6.1f} {step[3]}", flush=True)
        for sample, count in Counter(loop.slowest).most_common(12 if stacks else 0):
            print(f"    {count:3} {sample}")


async def _main(cases: list[Case], rounds: int, stacks: bool) -> None:
    loop = Loop()
    async with embedded_broker(offload=in_thread) as broker:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 50)  # as `barnabas.server.broker.process`
        trio.lowlevel.add_instrument(loop)
        if stacks:
            threading.Thread(target=loop.sample, daemon=True).start()
        token = trio.lowlevel.current_trio_token()
        await trio.to_thread.run_sync(
            _run, Client(broker.bootstrap), loop, cases, rounds, stacks, token, abandon_on_cancel=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("-n", type=int, default=3, help="rounds of each")
    parser.add_argument("--stacks", action="store_true", help="where the longest step of the last round was")
    asked = parser.parse_args()
    trio.run(_main, [case for case in CASES if asked.only in case.name], asked.n, asked.stacks)


if __name__ == "__main__":
    main()
