"""A broker on a system with fewer calls than Linux has: no fdatasync (macOS), no epoll for the reactor."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
del os.fdatasync
synced = []
fsync = os.fsync
os.fsync = lambda fd: (synced.append(fd), fsync(fd))

import trio
from barnabas.server.network import reactor
reactor.PORTABLE = True
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic

async def main():
    async with embedded_broker(log_flush_interval_messages="1") as broker:
        await topic(broker)
        before = len(synced)
        assert before, "the metadata of the topic were not synced"
        host, _, port = broker.bootstrap.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            assert only(await Client(stream).ask(request(batch(b"a")), 9)).error_code == 0
        assert len(synced) > before, "the record was not synced"

trio.run(main)
"""


def test_a_broker_without_what_only_linux_has() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
