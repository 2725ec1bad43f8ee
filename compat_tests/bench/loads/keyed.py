"""Keyed records for compaction and recovery, and a probe of what clients feel meanwhile.

Filling runs in a process of its own and prints one line of JSON:

`python -m compat_tests.bench.loads.keyed BOOTSTRAP TOPIC PARTITIONS RECORDS VALUE_BYTES KEYS`

KEYS 0: no keys. Otherwise each record has one of so many keys, chosen by a fixed seed, and one in fifty is a tombstone:
both brokers get the same records.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import confluent_kafka as ck

TIMEOUT_S = 600
INTERVAL_S = 0.005
SILENCE_S = 240.0


def fill(bootstrap: str, topic: str, partitions: int, records: int, value_bytes: int, keys: int) -> dict[str, float]:
    """Send the records with librdkafka's defaults; fail if one is refused."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 400_000}
    )
    failed: list[str] = []

    def report(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(str(error))

    rng = random.Random(5)
    value = rng.randbytes(value_bytes)
    started = time.perf_counter()
    for number in range(records):
        key = b"%012d" % rng.randrange(keys) if keys else None
        content = None if keys and number % 50 == 49 else value
        while True:
            try:
                producer.produce(topic, content, key, partition=number % partitions, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    taken = time.perf_counter() - started
    if failed or left:
        raise SystemExit(f"{len(failed)} records refused, {left} not answered: {failed[:1]}")
    return {"mb_per_s": records * value_bytes / 1e6 / taken}


class Probe:
    """Sends one record every 5 ms, acks=all, without lingering, in a thread; how long the answers take."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._topic = topic
        self._over = threading.Event()
        self._found: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        clock = time.perf_counter

        def answered(begun: float, error: ck.KafkaError | None) -> None:
            if error is None:
                self._found.append(clock() - begun)

        due = clock()
        while not self._over.is_set():
            due += INTERVAL_S
            begun = clock()
            self._producer.produce(
                self._topic, b"x" * 100, b"probe", on_delivery=lambda error, _, begun=begun: answered(begun, error)
            )
            while (left := due - clock()) > 0:
                self._producer.poll(min(left, INTERVAL_S))
            due = max(due, clock() - 1)
        self._producer.flush(TIMEOUT_S)

    def forget(self) -> None:
        """Count from now on."""
        self._found.clear()

    def percentiles(self) -> dict[str, float]:
        """Of what was answered since `forget`, in ms; waits for an answer if there was none."""
        deadline = time.monotonic() + SILENCE_S
        while not self._found:
            assert time.monotonic() < deadline, "no record was acknowledged"
            time.sleep(INTERVAL_S)
        ordered = sorted(self._found)
        return {"ack_p50_ms": ordered[len(ordered) // 2] * 1000, "ack_p99_ms": ordered[len(ordered) * 99 // 100] * 1000}

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


if __name__ == "__main__":
    its_bootstrap, its_topic, *numbers = sys.argv[1:]
    print(json.dumps(fill(its_bootstrap, its_topic, *map(int, numbers))))
