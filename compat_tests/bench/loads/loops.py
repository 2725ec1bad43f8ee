"""One operation after the other with librdkafka for some seconds behind a warm-up; one line of JSON.

    python -m compat_tests.bench.loads.loops transactions BOOTSTRAP TOPIC WARM_UP_S SECONDS PARTITIONS RECORDS GROUP
    python -m compat_tests.bench.loads.loops commits BOOTSTRAP TOPIC WARM_UP_S SECONDS PARTITIONS MEMBERS GROUP

GROUP `-`: no offsets in the transactions. MEMBERS: as many threads, each with a consumer of a group of its own.

Values: operations per second (`per_s`), percentiles of the time a commit takes (a transaction's is that of
commit_transaction), `total` operations with those of the warm-up.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka import TopicPartition

TIMEOUT_S = 60.0
VALUE = bytes(100)


def measure(warm_up_s: float, seconds: float, operations: list[Callable[[], float]]) -> dict[str, float]:
    """Run each of *operations*, which return the seconds a commit took, in a thread of its own again and again."""
    begin = time.perf_counter() + warm_up_s
    end = begin + seconds
    found: list[list[float]] = [[] for _ in operations]
    totals = [0] * len(operations)
    failed: list[BaseException] = []

    def loop(number: int) -> None:
        try:
            # One at least: a single operation may take longer than all of the time.
            while ((now := time.perf_counter()) < end or not found[number]) and not failed:
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
    ordered = sorted(one for each in found for one in each)
    places = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    percentiles = {name: ordered[int(len(ordered) * part)] * 1000 for name, part in places.items()}
    return {"per_s": len(ordered) / seconds, "total": sum(totals), **percentiles}


def transaction(bootstrap: str, topic: str, partitions: int, records: int, group: str) -> list[Callable[[], float]]:
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

    return [once]


def commit(bootstrap: str, topic: str, partitions: int, members: int, group: str) -> list[Callable[[], float]]:
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

    return [of(number) for number in range(members)]


def main(kind: str, bootstrap: str, topic: str, *rest: str) -> dict[str, float]:
    """Run one of them."""
    warm_up_s, seconds, partitions, number, group = rest
    makes = {"transactions": transaction, "commits": commit}[kind]
    return measure(float(warm_up_s), float(seconds), makes(bootstrap, topic, int(partitions), int(number), group))


if __name__ == "__main__":
    gc.disable()
    print(json.dumps(main(*sys.argv[1:])))
