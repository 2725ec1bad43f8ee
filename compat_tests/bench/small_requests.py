"""Load of small requests: many connections, each with one Produce of one record in flight, in a closed loop.

One process, one thread, one epoll; frames are built beforehand and an answer is looked at for its length and its error
code only: about 8 us a request on the machine it was written on, most of it the kernel's. Run as
`python -m compat_tests.bench.small_requests HOST PORT TOPIC PARTITIONS CONNECTIONS SECONDS`; prints one line of JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from compat_tests.bench import frames

VALUE = b"x" * 100
WARM_UP_S = 1.0


def run(host: str, port: int, topic: str, partitions: int, connections: int, seconds: float) -> dict[str, float]:
    """Send for *seconds* after a warm-up; return requests per second and latencies in milliseconds."""
    poller = select.epoll()
    sockets: dict[int, socket.socket] = {}
    requests: dict[int, bytes] = {}
    started: dict[int, float] = {}
    for number in range(connections):
        connection = socket.create_connection((host, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = frames.produce(topic, number % partitions, VALUE, acks=1)
        # The first exchange tells the length of an answer and opens what is opened on first use.
        connection.sendall(request)
        answer = frames.receive_frame(connection)
        connection.setblocking(False)
        sockets[connection.fileno()] = connection
        requests[connection.fileno()] = request
        poller.register(connection.fileno(), select.EPOLLIN)
    size, place = len(answer), frames.error_position(topic)
    clock = time.perf_counter
    latencies: list[float] = []
    begin = clock() + WARM_UP_S
    end = begin + seconds
    for number, connection in sockets.items():
        started[number] = clock()
        connection.send(requests[number])
    now = clock()
    cpu = 0.0
    while now < end:
        if not cpu and now >= begin:
            cpu = time.process_time()
        for number, _ in poller.poll(5.0):
            connection = sockets[number]
            answer = connection.recv(4096)
            if len(answer) != size or answer[place : place + 2] != b"\x00\x00":
                raise SystemExit(f"not an answer without error: {answer!r}")
            now = clock()
            if now >= begin:
                latencies.append(now - started[number])
            started[number] = now
            connection.send(requests[number])
    cpu = time.process_time() - cpu
    latencies.sort()
    return {
        "requests_per_s": len(latencies) / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        "client_cpu_us_per_request": cpu / len(latencies) * 1e6,
    }


if __name__ == "__main__":
    _, its_host, its_port, its_topic, its_partitions, its_connections, its_seconds = sys.argv
    found = run(its_host, int(its_port), its_topic, int(its_partitions), int(its_connections), float(its_seconds))
    print(json.dumps(found))
