"""The librdkafka measures (confluent-kafka) in a process of their own; each prints one line of JSON.

`python -m compat_tests.bench.librdkafka produce|consume|latency BOOTSTRAP TOPIC NUMBER [JSON]`: NUMBER is records
(1 KiB each), for latency the seconds of a stream of 1,000 records/s; JSON are more settings of the client.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping

import confluent_kafka as ck

RECORD_BYTES = 1024
RATE_PER_S = 1000
TIMEOUT_S = 300


def produce(given: Mapping[str, str], topic: str, count: int) -> dict[str, float]:
    """Send *count* records with the library's defaults (acks=all, batches up to 1 MB, linger 5 ms)."""
    producer = ck.Producer({**given, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 400_000})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    failed: list[str] = []

    def report(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(str(error))

    value = bytes(RECORD_BYTES)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    taken = time.perf_counter() - started
    if failed or left:
        raise SystemExit(f"{len(failed)} records refused, {left} not answered: {failed[:1]}")
    return {"mb_per_s": count * RECORD_BYTES / 1e6 / taken}


def consume(given: Mapping[str, str], topic: str, count: int) -> dict[str, float]:
    """Read *count* records from the beginning of all partitions; the clock starts with the first."""
    consumer = ck.Consumer(
        {
            **given,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in partitions])
    seen, size, started = 0, 0, 0.0
    deadline = time.monotonic() + TIMEOUT_S
    while seen < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{seen} of {count} records in {TIMEOUT_S} s")
        found = consumer.consume(5000, 0.1)
        if found and not started:
            started = time.perf_counter()
            continue
        for one in found:
            if one.error() is not None:
                raise SystemExit(str(one.error()))
            size += len(one)
        seen += len(found)
        if size >= (count - 10_000) * RECORD_BYTES:
            break
    taken = time.perf_counter() - started
    consumer.close()
    return {"mb_per_s": size / 1e6 / taken}


def latency(given: Mapping[str, str], topic: str, seconds: int) -> dict[str, float]:
    """Send 1,000 records/s without lingering and read them back; return percentiles of the time between, in ms."""
    consumer = ck.Consumer(
        {
            **given,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    producer = ck.Producer({**given, "linger.ms": 0, "acks": "all"})
    count = seconds * RATE_PER_S
    warm_up = RATE_PER_S
    clock = time.perf_counter

    def send() -> None:
        start = clock()
        for number in range(warm_up + count):
            due = start + number / RATE_PER_S
            while (now := clock()) < due:
                time.sleep(min(due - now, 0.001))
            producer.produce(topic, repr(clock()).encode())
            producer.poll(0)

    sender = threading.Thread(target=send)
    sender.start()
    found: list[float] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < warm_up + count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(found)} of {warm_up + count} records in {TIMEOUT_S} s")
        one = consumer.poll(1.0)
        if one is not None and one.error() is None:
            found.append(clock() - float(one.value()))
    sender.join()
    consumer.close()
    ordered = sorted(found[warm_up:])
    return {"p50_ms": ordered[len(ordered) // 2] * 1000, "p99_ms": ordered[len(ordered) * 99 // 100] * 1000}


if __name__ == "__main__":
    _, its_kind, its_bootstrap, its_topic, its_number, *more = sys.argv
    given = {"bootstrap.servers": its_bootstrap, **(json.loads(more[0]) if more else {})}
    kinds = {"produce": produce, "consume": consume, "latency": latency}
    print(json.dumps(kinds[its_kind](given, its_topic, int(its_number))))
