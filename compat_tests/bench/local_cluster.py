"""A cluster on one machine: what it costs to have one, and what several brokers bring for small requests.

    python -m compat_tests.bench.local_cluster [--rounds N] [--seconds S] [--json FILE]

Clusters of one to four brokers (`barnabas cluster`), one after the other in each round: until all are ready,
the memory of each process, until a topic of eight partitions is made, and 64 connections with one Produce of one record
in flight each, every one to the leader of its partition. Topics have one replica here: what is measured is more cores.
The client is one process and takes some 7 us a request, more than that of the other measures: on a machine with few
cores it is a part of what is measured. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.bench.loads import exchanges
from compat_tests.bench.loads.exchanges import Exchange
from compat_tests.bench.machine import processes
from compat_tests.harness.jars import PROJECT_ROOT

SIZES = (1, 2, 3, 4)
PARTITIONS, CONNECTIONS = 8, 64
TOPIC = "small"
VALUE = b"x" * 100
WARM_UP_S = 1.0


@contextmanager
def cluster(brokers: int, directory: Path) -> Iterator[tuple[float, str, int]]:
    """A cluster: seconds until it was ready, its addresses, the supervisor's pid."""
    program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
    command = [*program, "cluster", "--brokers", str(brokers), "--port", "0", "--data", str(directory / "data")]
    command += ["--no-env", "--log-level", "warn", "--set", "default.replication.factor=1"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    begun = time.monotonic()
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=PROJECT_ROOT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        ready_s = time.monotonic() - begun
        if not line.startswith("bootstrap="):
            raise SystemExit((directory / "log").read_text())
        yield ready_s, line.strip().removeprefix("bootstrap="), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def memory_mb(supervisor: int) -> dict[str, float]:
    """Resident memory of each process, in MB, by its name in the log."""
    found = {"supervisor": resident_mb(supervisor)}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == supervisor and b"--log-name" in words:
            name = words[words.index(b"--log-name") + 1].decode()
            found[name] = resident_mb(int(stat.parent.name))
    return found


def resident_mb(pid: int) -> float:
    """Resident memory."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) / 1000


def make_topic(bootstrap: str) -> float:
    """Make the topic; return the milliseconds until the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=20)  # the connection is not measured
    begun = time.perf_counter()
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    return (time.perf_counter() - begun) * 1000


def leaders(bootstrap: str) -> list[tuple[str, int]]:
    """Return who leads each partition of the topic."""
    while True:
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=20)
        led = [found.topics[TOPIC].partitions[index].leader for index in range(len(found.topics[TOPIC].partitions))]
        if len(led) == PARTITIONS and all(leader in found.brokers for leader in led):
            return [(found.brokers[leader].host, found.brokers[leader].port) for leader in led]


def small_requests(addresses: list[tuple[str, int]], supervisor: int, seconds: float) -> dict[str, float]:
    """A closed loop on all connections, each to the leader of its partition: Produce by topic id, acks=1. Requests per
    second, CPU microseconds a request of all brokers and of the client.
    """
    found = []
    for partition, address in enumerate(addresses):
        with exchanges.trying(address) as broker:
            found.append(broker.produce(TOPIC, VALUE, partition, by_id=True))
    poller = select.epoll()
    sockets: dict[int, tuple[socket.socket, Exchange]] = {}
    for number in range(CONNECTIONS):
        one = found[number % PARTITIONS]
        connection = socket.create_connection((addresses[number % PARTITIONS][0], one.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        sockets[connection.fileno()] = connection, one
        poller.register(connection.fileno(), select.EPOLLIN)
    for connection, one in sockets.values():
        connection.send(one.frame)
    begin = time.perf_counter() + WARM_UP_S
    end = begin + seconds
    count, now = 0, 0.0
    cpu: tuple[float, float] | None = None
    while now < end:
        if cpu is None and now >= begin:
            cpu = processes.cpu_seconds(supervisor), time.process_time()
        for number, _ in poller.poll(5.0):
            connection, one = sockets[number]
            answer = connection.recv(4096)
            (place,) = one.errors
            if len(answer) != one.answer_bytes or answer[place : place + 2] != b"\x00\x00":
                raise SystemExit(f"not an answer without error: {answer!r}")
            now = time.perf_counter()
            count += now >= begin
            connection.send(one.frame)
    assert cpu is not None
    brokers_s, client_s = processes.cpu_seconds(supervisor) - cpu[0], time.process_time() - cpu[1]
    for connection, _ in sockets.values():
        connection.close()
    return {
        "requests_per_s": count / seconds,
        "brokers_cpu_us": brokers_s / count * 1e6,
        "client_cpu_us": client_s / count * 1e6,
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench.local_cluster")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    values: dict[str, dict[str, list[float]]] = {str(size): {} for size in SIZES}
    for number in range(options.rounds):
        for size in SIZES if number % 2 == 0 else reversed(SIZES):
            with (
                tempfile.TemporaryDirectory(prefix="local-cluster-") as temporary,
                cluster(size, Path(temporary)) as (ready_s, bootstrap, supervisor),
            ):
                found = {"ready_s": ready_s, "topic_ms": make_topic(bootstrap)}
                found |= {f"{name}_mb": mb for name, mb in memory_mb(supervisor).items()}
                found |= small_requests(leaders(bootstrap), supervisor, options.seconds)
            for name, value in found.items():
                values[str(size)].setdefault(name, []).append(value)
            print(size, {name: round(value, 2) for name, value in found.items()}, file=sys.stderr, flush=True)
    medians = {size: {name: statistics.median(all_) for name, all_ in rows.items()} for size, rows in values.items()}
    for size, rows in medians.items():
        print(f"{size} brokers: " + ", ".join(f"{name} {value:.2f}" for name, value in rows.items()))
    one, four = (medians[size]["requests_per_s"] for size in ("1", "4"))
    print(f"four brokers / one, small requests: {four / one:.2f}")
    if options.json:
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
