"""One operation after the other for some seconds behind a warm-up, in a process of its own; one line of JSON each.

    python -m compat_tests.bench.loops transactions BOOTSTRAP TOPIC SECONDS PARTITIONS RECORDS GROUP
    python -m compat_tests.bench.loops commits BOOTSTRAP TOPIC SECONDS PARTITIONS MEMBERS GROUP
    python -m compat_tests.bench.loops requests BOOTSTRAP TOPIC SECONDS CONNECTIONS IN_FLIGHT

The first two are librdkafka with its defaults (GROUP `-`: no offsets in the transactions; MEMBERS: as many threads,
each with a consumer). The third sends OffsetCommit requests as bytes, each connection for a group without members.

Values: operations per second, percentiles of the time a commit takes (a transaction's is that of commit_transaction),
`total` operations with those of the warm-up.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka import TopicPartition

from compat_tests.bench import frames

WARM_UP_S = 3.0
TIMEOUT_S = 60.0
VALUE = bytes(100)


def measure(what: str, seconds: float, operations: list[Callable[[], float]]) -> dict[str, float]:
    """Run each of *operations*, which return the seconds a commit took, in a thread of its own again and again."""
    begin = time.perf_counter() + WARM_UP_S
    end = begin + seconds
    found: list[list[float]] = [[] for _ in operations]
    totals = [0] * len(operations)
    failed: list[BaseException] = []

    def loop(number: int) -> None:
        try:
            while (now := time.perf_counter()) < end and not failed:
                taken = operations[number]()
                totals[number] += 1
                if now >= begin:
                    found[number].append(taken)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(len(operations))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"after {sum(totals)} operations: {failed[0]!r}")
    return summary(what, seconds, [one for each in found for one in each], sum(totals))


def summary(what: str, seconds: float, found: list[float], total: int) -> dict[str, float]:
    """Return the values of a measure; *found* are seconds."""
    ordered = sorted(found)
    return {
        what: len(ordered) / seconds,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1000,
        "total": total,
    }


def transactions(
    bootstrap: str, topic: str, seconds: float, partitions: int, records: int, group: str
) -> dict[str, float]:
    """One producer: begin, *records* records in turn to *partitions* partitions, commit."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    metadata = None
    if group != "-":
        metadata = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group}).consumer_group_metadata()
    offset = 0

    def once() -> float:
        nonlocal offset
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, VALUE, partition=number % partitions)
        if metadata is not None:
            offset += records
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, TIMEOUT_S)
        begun = time.perf_counter()
        producer.commit_transaction(TIMEOUT_S)
        return time.perf_counter() - begun

    return measure("transactions_per_s", seconds, [once])


def commits(bootstrap: str, topic: str, seconds: float, partitions: int, members: int, group: str) -> dict[str, float]:
    """*members* consumers of as many groups, each commits all its partitions and waits for the answer."""

    def of(number: int) -> Callable[[], float]:
        consumer = ck.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{group}-{number}", "enable.auto.commit": False}
        )
        offset = 0

        def once() -> float:
            nonlocal offset
            offset += 1
            wanted = [TopicPartition(topic, index, offset) for index in range(partitions)]
            begun = time.perf_counter()
            answered = consumer.commit(offsets=wanted, asynchronous=False)
            assert not any(one.error for one in answered), answered
            return time.perf_counter() - begun

        return once

    return measure("commits_per_s", seconds, [of(number) for number in range(members)])


def commit_request(group: str, topic: str, offset: int) -> bytes:
    """Return an OffsetCommit v2 request of one partition by somebody who is no member."""
    name = topic.encode()
    body = struct_string(group.encode()) + (-1).to_bytes(4, "big", signed=True) + struct_string(b"")
    body += (-1).to_bytes(8, "big", signed=True) + (1).to_bytes(4, "big") + struct_string(name)
    body += (1).to_bytes(4, "big") + (0).to_bytes(4, "big") + offset.to_bytes(8, "big") + struct_string(b"")
    return frames.request(8, 2, body)


def struct_string(text: bytes) -> bytes:
    """Return a protocol string."""
    return len(text).to_bytes(2, "big") + text


def requests(bootstrap: str, topic: str, seconds: float, connections: int, in_flight: int) -> dict[str, float]:
    """*connections* with *in_flight* requests under way on each; one thread and one epoll."""
    host, _, port = bootstrap.rpartition(":")
    size = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2  # the error code is the end
    poller = select.epoll()
    sockets: dict[int, socket.socket] = {}
    wanted: dict[int, bytes] = {}
    sent: dict[int, deque[float]] = {}
    left: dict[int, bytes] = {}
    for number in range(connections):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        group = f"{topic}-{number}"
        until_ready(connection, frames.request(10, 0, struct_string(group.encode())), 8)
        until_ready(connection, commit_request(group, topic, 0), size - 2)
        connection.setblocking(False)
        file = connection.fileno()
        sockets[file], wanted[file], sent[file], left[file] = connection, commit_request(group, topic, 7), deque(), b""
        poller.register(file, select.EPOLLIN)
    clock = time.perf_counter
    begin = clock() + WARM_UP_S
    end, now, total = begin + seconds, clock(), 0
    found: list[float] = []
    for file, connection in sockets.items():
        connection.sendall(wanted[file] * in_flight)
        sent[file].extend([now] * in_flight)
    while now < end:
        for file, _ in poller.poll(5.0):
            data = left[file] + sockets[file].recv(1 << 16)
            whole = len(data) // size
            now = clock()
            for start in range(0, whole * size, size):
                if data[start + size - 2 : start + size] != b"\x00\x00":
                    raise SystemExit(f"not an answer without error: {data[start : start + size]!r}")
                if now >= begin:
                    found.append(now - sent[file][0])
                sent[file].popleft()
            left[file] = data[whole * size :]
            if whole:
                sockets[file].sendall(wanted[file] * whole)
                sent[file].extend([now] * whole)
                total += whole
        now = clock()
    return summary("commits_per_s", seconds, found, total)


def until_ready(connection: socket.socket, request: bytes, position: int) -> None:
    """Send *request* until the answer's error code, at *position*, is 0: coordinators load and topics are made."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        connection.sendall(request)
        answer = frames.receive_frame(connection)
        error = int.from_bytes(answer[position : position + 2], "big", signed=True)
        if error == 0:
            return
        if error not in (14, 15, 16) or time.monotonic() > deadline:
            raise SystemExit(f"error {error}")
        time.sleep(0.1)


def main(kind: str, bootstrap: str, topic: str, seconds: str, *rest: str) -> dict[str, float]:
    """Run one of them."""
    if kind == "requests":
        return requests(bootstrap, topic, float(seconds), *map(int, rest))
    *numbers, group = rest
    work = transactions if kind == "transactions" else commits
    return work(bootstrap, topic, float(seconds), int(numbers[0]), int(numbers[1]), group)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
