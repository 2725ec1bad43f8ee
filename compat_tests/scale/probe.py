"""A steady stream of small records, and how long each takes: the process that measures what others feel.

`python -m compat_tests.scale.probe BOOTSTRAP TOPIC RATE SECONDS` sends one Produce (v7, acks=1) of one record at each
tick of the clock, on one connection, without waiting for the answer of the one before, and reads them back with Fetch
(v4) on another. Both latencies count from the tick at which a record was due, not from when it was sent, so a broker
that stands still is charged for all records of that time. Prints one line of JSON, in milliseconds. One thread; all
frames but the offsets of Fetch are built beforehand.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import struct
import sys
import time
from collections import deque

from compat_tests.bench.loads import frames
from compat_tests.scale.wire import request, string

VALUE = b"x" * 100
WARM_UP_S = 1.0
LAST_S = 60.0
"""How long answers may take after the last record was sent."""

_FETCH = struct.Struct(">iiiib")
_BATCH = struct.Struct(">qi")


class Stream:
    """One socket and what has been received on it but not understood yet."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def frames(self) -> list[bytes]:
        """The whole frames that have come, without their lengths."""
        data = self._received
        part = self.socket.recv(1 << 18)
        if not part:
            raise SystemExit("the broker closed the connection")
        data += part
        found = []
        start = 0
        while len(data) - start >= 4:
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            if len(data) < end:
                break
            found.append(bytes(data[start + 4 : end]))
            start = end
        del data[:start]
        return found


def fetch(topic: str, offset: int) -> bytes:
    """A Fetch v4 of partition 0 from *offset* on, that waits up to half a second for a byte."""
    body = _FETCH.pack(-1, 500, 1, 1 << 20, 0) + struct.pack(">i", 1) + string(topic)
    return request(1, 4, body + struct.pack(">iiqi", 1, 0, offset, 1 << 20))


def batches(topic: str, answer: bytes) -> list[int]:
    """The base offsets in the answer to `fetch`."""
    at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, at)
    if error:
        raise SystemExit(f"Fetch: error code {error}")
    at += 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + 16 * max(aborted, 0)
    end = at + 4 + struct.unpack_from(">i", answer, at)[0]
    at += 4
    found = []
    while at + 12 <= end:
        base, size = _BATCH.unpack_from(answer, at)
        if at + 12 + size > end:
            break
        found.append(base)
        at += 12 + size
    return found


def run(bootstrap: str, topic: str, rate: int, seconds: float) -> dict[str, float]:
    """Send and read for *seconds* after a warm-up. The topic is empty, and nobody else writes to it."""
    host, _, port = bootstrap.rpartition(":")
    sending, reading = Stream(host, int(port)), Stream(host, int(port))
    produce = frames.produce_by_name(topic, 0, frames.one_record_batch(VALUE))
    place = 4 + 4 + len(string(topic)) + 4 + 4  # of the error code, in an answer without its length
    both = [sending.socket, reading.socket]
    clock = time.perf_counter
    total = int((WARM_UP_S + seconds) * rate)
    skipped = int(WARM_UP_S * rate)
    due: deque[float] = deque()
    dues: list[float] = []
    acknowledged: list[float] = []
    read: list[float] = []
    seen = 0
    reading.socket.sendall(fetch(topic, 0))
    gc.disable()
    begin = clock() + 0.1
    sent = 0
    while seen < total:
        now = clock()
        first = sent
        while sent < total and begin + sent / rate <= now:
            at = begin + sent / rate
            due.append(at)
            dues.append(at)
            sent += 1
        if sent > first:
            sending.socket.sendall(produce * (sent - first))
        if sent == total and now > begin + total / rate + LAST_S:
            raise SystemExit(f"{total - seen} records were not read back within {LAST_S:g} s")
        wait_s = begin + sent / rate - clock() if sent < total else 1.0
        # Not epoll: its timeout is in milliseconds, and the next tick may be due in 100 us.
        for readable in select.select(both, [], [], max(wait_s, 0.0))[0]:
            if readable is sending.socket:
                for answer in sending.frames():
                    if answer[place : place + 2] != b"\0\0":
                        raise SystemExit(f"Produce: {answer!r}")
                    acknowledged.append(clock() - due.popleft())
            else:
                for answer in reading.frames():
                    for base in batches(topic, answer):
                        if base >= seen:
                            read.append(clock() - dues[base])
                            seen = base + 1
                    reading.socket.sendall(fetch(topic, seen))
    return {**_spread("produce", acknowledged[skipped:]), **_spread("end_to_end", read[skipped:])}


def _spread(what: str, seconds: list[float]) -> dict[str, float]:
    rising = sorted(seconds)
    last = len(rising) - 1
    return {
        f"{what}_{name}_ms": rising[min(int(len(rising) * share), last)] * 1000
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
    }


if __name__ == "__main__":
    _, its_bootstrap, its_topic, its_rate, its_seconds = sys.argv
    print(json.dumps(run(its_bootstrap, its_topic, int(its_rate), float(its_seconds))))
