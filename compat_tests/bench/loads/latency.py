"""End to end with librdkafka: from produce() in one process to the record in the hands of another; one line of JSON.

    python -m compat_tests.bench.loads.latency BOOTSTRAP TOPIC RATE WARM_UP_S SECONDS [JSON]

The sender is a second process, so that neither waits for the other's interpreter: RATE records of 200 bytes a second
without lingering, acks=all, each with the time at which it was handed over. (Both read the same monotonic clock.)
"""

from __future__ import annotations

import gc
import json
import struct
import subprocess
import sys
import time
from collections.abc import Mapping

import confluent_kafka as ck

TIMEOUT_S = 300
FILLING = b"x" * 192
clock = time.perf_counter


def send(given: Mapping[str, str], topic: str, rate: int, count: int) -> None:
    """Send at a steady rate."""
    producer = ck.Producer({**given, "linger.ms": 0, "acks": "all"})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    failed: list[str] = []

    def answered(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(str(error))

    start = clock()
    for number in range(count):
        due = start + number / rate
        while (now := clock()) < due:
            time.sleep(min(due - now, 0.001))
        producer.produce(topic, struct.pack(">d", clock()) + FILLING, on_delivery=answered)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if failed or left:
        raise SystemExit(f"{len(failed)} records refused, {left} not answered: {failed[:1]}")


def receive(
    given: Mapping[str, str], topic: str, rate: int, warm_up_s: float, seconds: float, sender: list[str]
) -> dict[str, float]:
    """Start the sender when this one is ready; percentiles of the time on the way."""
    consumer = ck.Consumer({**given, "group.id": "bench", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    consumer.poll(1.0)
    warm_up = int(rate * warm_up_s)
    count = warm_up + int(rate * seconds)
    found: list[float] = []
    with subprocess.Popen([*sender, str(count)]) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count:
                if time.monotonic() > deadline or process.poll() not in (None, 0):
                    raise SystemExit(f"{len(found)} of {count} records have come")
                one = consumer.poll(0.5)
                if one is None:
                    continue
                if one.error() is not None:
                    raise SystemExit(str(one.error()))
                found.append(clock() - struct.unpack_from(">d", one.value())[0])
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit("the sender failed")
    consumer.close()
    ordered = sorted(found[warm_up:])
    places = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {name: ordered[int(len(ordered) * part)] * 1000 for name, part in places.items()}


def main(bootstrap: str, topic: str, rate: str, *rest: str) -> None:
    """The receiver, or `send` with the number of records behind everything else."""
    gc.disable()
    sends = rest[0] == "send"
    more = rest[1 if sends else 2 :]
    given = {"bootstrap.servers": bootstrap, **(json.loads(more[0]) if more else {})}
    if sends:
        send(given, topic, int(rate), int(more[1]))
        return
    sender = [sys.executable, "-m", "compat_tests.bench.loads.latency", bootstrap, topic, rate, "send"]
    sender.append(json.dumps({key: value for key, value in given.items() if key != "bootstrap.servers"}))
    print(json.dumps(receive(given, topic, int(rate), float(rest[0]), float(rest[1]), sender)))


if __name__ == "__main__":
    main(*sys.argv[1:])
