"""Apache Kafka's own DumpLogSegments reads the data directory of our broker without one complaint."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from compat_tests.bench.loads import frames
from compat_tests.harness import dump_log
from compat_tests.harness.broker_process import Server
from compat_tests.harness.checks import wait_until

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


INDEXES = {".index", ".timeindex", ".snapshot"}


def suffixes(server: Server) -> set[str]:
    """Of the files of the topic."""
    return {path.suffix for path in server.data.glob("dumped-0/*.*")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, **{"log.segment.bytes": "40000", "offsets.topic.num.partitions": "3"})
    server.start()
    yield server
    server.stop()


def dump(files: list[Path], *options: str) -> str:
    """Run the tool over files and return what it printed; it must not complain."""
    lines = dump_log.run(files, *options, expect=0)
    assert dump_log.wrong(lines) == []
    return "\n".join(lines)


def commit_at_once(bootstrap: str, topic: str) -> None:
    """Commits of 32 groups, from a connection each, again and again: many of them are in one round of the broker."""
    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(32)]
        for offset in range(1, 30):
            for number, sock in enumerate(sockets):
                sock.sendall(frames.offset_commit(f"{topic}-{number}", topic, 1, offset))
            for sock in sockets:
                size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
                assert len(sock.recv(size, socket.MSG_WAITALL)) == size


@pytest.mark.parametrize("stopped", ["cleanly", "by kill -9"])
def test_the_data_directory_is_apache_kafkas(server: Server, stopped: str) -> None:
    sent = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "compression.type": codec, "enable.idempotence": codec == "lz4"}
        )
        for number in range(400):
            producer.produce("dumped", f"{codec} {number} ".encode() * 20, key=str(number).encode(), partition=0)
            sent += 1
            if number % 20 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "dumping", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["dumped"])
    read = 0
    while read < sent:
        messages = consumer.consume(sent - read, 60.0)
        assert messages, f"{read} of {sent} came"
        read += len(messages)
    consumer.commit(asynchronous=False)
    consumer.close()
    commit_at_once(server.bootstrap, "dumped")
    if stopped == "cleanly":
        assert server.stop() == 0
        assert (server.data / ".kafka_cleanshutdown").exists()
    else:
        wait_until(lambda: suffixes(server) >= INDEXES, "the indexes are saved, which no write waits for")
        server.kill()

    files = sorted(server.data.glob("dumped-0/*.*"))
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > 2
    printed = dump(logs, "--deep-iteration", "--print-data-log")
    assert printed.count("| offset: ") == sent
    indexes = [path for path in files if path.suffix in (".index", ".timeindex", ".snapshot", ".txnindex")]
    assert {path.suffix for path in indexes} >= INDEXES
    dump([path for path in indexes if path.suffix != ".snapshot"], "--index-sanity-check")
    dump([path for path in indexes if path.suffix in (".index", ".timeindex")], "--verify-index-only")
    dump([path for path in indexes if path.suffix == ".snapshot"])

    offsets = [path for path in sorted(server.data.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    assert offsets
    printed = dump(offsets, "--deep-iteration", "--offsets-decoder")
    assert '"group":"dumping","topic":"dumped","partition":0' in printed.replace(" ", "")
    assert f'"offset":{sent}' in printed.replace(" ", "")
    assert '"group":"dumped-31","topic":"dumped","partition":0' in printed.replace(" ", "")
    assert max(int(count) for count in re.findall(r"baseOffset: .* count: ([0-9]+) ", printed)) > 1, "none are joined"
