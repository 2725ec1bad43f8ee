"""Producing and consuming with librdkafka (confluent-kafka) as fast as it goes; one line of JSON.

    python -m compat_tests.bench.loads.librdkafka produce BOOTSTRAP TOPIC FILE COUNT [JSON]
    python -m compat_tests.bench.loads.librdkafka consume BOOTSTRAP TOPIC COUNT BYTES TIMES [JSON]
    python -m compat_tests.bench.loads.librdkafka stream BOOTSTRAP TOPIC FILE RATE [JSON]

Values are those of FILE in turn. BYTES are what the first COUNT records have; they are read TIMES times. JSON are more
settings of the client. `stream` sends RATE records a second until its standard input ends. MB are 1,000,000 bytes of
values.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import confluent_kafka as ck

from compat_tests.bench.loads.values import in_turn, read

TIMEOUT_S = 300
QUEUE = {"queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 400_000}


class Sender:
    """A producer that waits when its queue is full, and keeps the first error."""

    def __init__(self, given: Mapping[str, str], topic: str) -> None:
        self._producer = ck.Producer({**given, **QUEUE})
        self._topic = topic
        self._failed: list[str] = []
        self._producer.list_topics(topic, timeout=TIMEOUT_S)

    def _answered(self, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    def send(self, value: bytes) -> None:
        """Hand one over."""
        while True:
            try:
                self._producer.produce(self._topic, value, on_delivery=self._answered)
                return
            except BufferError:
                self._producer.poll(0.01)

    def poll(self) -> None:
        """Hear answers."""
        self._producer.poll(0)

    def finish(self) -> None:
        """Return when all are answered; exits if one was refused."""
        left = self._producer.flush(TIMEOUT_S)
        if self._failed or left:
            raise SystemExit(f"{len(self._failed)} records refused, {left} not answered: {self._failed[:1]}")


def produce(given: Mapping[str, str], topic: str, path: str, count: str) -> dict[str, float]:
    """Send with the library's defaults: acks=all, batches up to 1 MB, linger 5 ms."""
    pool = read(Path(path))
    sender = Sender(given, topic)
    size = 0
    started = time.perf_counter()
    for number, value in enumerate(islice(in_turn(pool), int(count))):
        sender.send(value)
        size += len(value)
        if number % 1000 == 0:
            sender.poll()
    sender.finish()
    return {"mb_per_s": size / 1e6 / (time.perf_counter() - started), "bytes": size}


def consume(given: Mapping[str, str], topic: str, wanted: str, expected: str, times: str) -> dict[str, float]:
    """Read from the beginning of all partitions; the clock starts with the first answer, which does not count."""
    count = int(wanted)
    consumer = ck.Consumer({**given, "group.id": "bench", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    whole, uncounted, started = 0, 0, 0.0
    deadline = time.monotonic() + TIMEOUT_S
    for _ in range(int(times)):
        seen, size = 0, 0
        consumer.assign([ck.TopicPartition(topic, index, 0) for index in partitions])
        while seen < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"{seen} of {count} records in {TIMEOUT_S} s")
            found = consumer.consume(5000, 0.1)
            for one in found:
                if one.error() is not None:
                    raise SystemExit(str(one.error()))
            size += sum(map(len, found[: count - seen]))
            seen += len(found)
            if found and not started:
                started, uncounted = time.perf_counter(), size
        if size != int(expected):
            raise SystemExit(f"{size} bytes were read, and not {expected}")
        whole += size
    taken = time.perf_counter() - started
    consumer.close()
    return {"mb_per_s": (whole - uncounted) / 1e6 / taken, "bytes": whole}


def stream(given: Mapping[str, str], topic: str, path: str, rate: str) -> dict[str, float]:
    """Send at a steady rate until nobody wants it any more."""
    sender = Sender(given, topic)
    begun, sent = time.perf_counter(), 0
    for value in in_turn(read(Path(path))):
        due = begun + sent / int(rate)
        if (left := due - time.perf_counter()) > 0.001:
            sender.poll()
            if select.select([sys.stdin], [], [], left)[0]:
                break
        sender.send(value)
        sent += 1
    sender.finish()
    return {"records": sent}


if __name__ == "__main__":
    gc.disable()
    _, its_kind, its_bootstrap, its_topic, *its_rest = sys.argv
    work, words = {"produce": (produce, 2), "consume": (consume, 3), "stream": (stream, 2)}[its_kind]
    more = json.loads(its_rest[words]) if len(its_rest) > words else {}
    print(json.dumps(work({"bootstrap.servers": its_bootstrap, **more}, its_topic, *its_rest[:words])))
