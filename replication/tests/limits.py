"""What a cluster of a hundred brokers and a million partitions would cost, calculated from what pieces of it cost here.

    python -m barnabas.replication.tests.limits [--partitions N] [--zookeeper HOST:PORT]

Measures microseconds of CPU and bytes for one partition, with N of them (50,000) in topics of ten on 100 brokers, three
replicas each: reading its state as a new controller, deciding and writing it when a broker dies, telling brokers. With
a ZooKeeper also how many nodes a second it hands out and takes. Prints both, and what follows for a million. No test.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import TypeVar

import trio

from barnabas.kproto import decode, encode
from barnabas.replication.controller.controller import Controller
from barnabas.replication.controller.writes import STATES_PER_COMMIT
from barnabas.replication.messages import wire
from barnabas.replication.messages.effects import (
    Commit,
    Effect,
    LeaderAndIsr,
    PartitionChange,
    SendMessage,
    UpdateMetadata,
    apply_update,
)
from barnabas.replication.store.store import Create, Set
from barnabas.replication.store.zk import zookeeper_store
from barnabas.replication.store.zk_settings import ZooKeeperSettings
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import state_node, with_state
from barnabas.replication.values.image import BrokerImage, Endpoint, Image, PartitionImage, TopicImage

BROKERS, PER_TOPIC, REPLICAS = 100, 10, 3
MILLION = 1_000_000
UPDATE_VERSION, LEAD_VERSION = 8, 7
T = TypeVar("T")


def image_of(count: int) -> Image:
    """A settled cluster: replicas lie evenly, and all are in sync."""
    brokers = {n: BrokerImage(n, (Endpoint("PLAINTEXT", f"b{n}.example.org", 9092),), epoch=n) for n in range(BROKERS)}
    topics = []
    for number in range(count // PER_TOPIC):
        partitions = []
        for index in range(PER_TOPIC):
            first = (number * PER_TOPIC + index) % BROKERS
            replicas = tuple((first + step * 7) % BROKERS for step in range(REPLICAS))
            partitions.append(PartitionImage(index, first, 3, 5, replicas, replicas))
        topics.append(TopicImage(f"topic-{number:06d}", number.to_bytes(16, "big"), tuple(partitions)))
    return Image().with_brokers(brokers).with_topics(topics)


def everything(image: Image) -> tuple[PartitionChange, ...]:
    return tuple(PartitionChange(t.name, t.topic_id, each) for t in image.topics.values() for each in t.partitions)


class Costs:
    """Microseconds of CPU for each of so many, by what was done."""

    def __init__(self) -> None:
        self.us: dict[str, float] = {}

    def of(self, what: str, count: int, work: Callable[[], T], rounds: int = 3) -> T:
        """The best of some rounds."""
        best = float("inf")
        for _ in range(rounds):
            gc.collect()
            begun = time.process_time()
            result = work()
            best = min(best, time.process_time() - begun)
        self.us[what] = best * 1e6 / count
        return result


def measure(count: int) -> tuple[Costs, dict[str, float]]:
    """Costs of one partition, and bytes for one."""
    costs, size = Costs(), {}
    gc.disable()
    image = image_of(count)
    changes = everything(image)
    nodes = [paths.encode_state(state_node(change.partition, 1)) for change in changes]
    size["state node"] = sum(map(len, nodes)) / count

    def read() -> None:
        for change, data in zip(changes, nodes, strict=True):
            with_state(change.partition, paths.decode_state("", data), 5)

    costs.of("a new controller reads a state", count, read)
    update = UpdateMetadata(1, 1, 1, tuple(image.brokers.values()), changes)
    request = wire.update_metadata_request(update, UPDATE_VERSION)

    def told() -> bytes:
        return encode(wire.update_metadata_request(update, UPDATE_VERSION), UPDATE_VERSION)

    data = costs.of("UpdateMetadata: written, for each broker", count, told)
    size["UpdateMetadata"] = len(data) / count

    def heard() -> Image:
        return apply_update(Image(), wire.update_metadata(decode(type(request), UPDATE_VERSION, data), 8), {})

    costs.of("UpdateMetadata: read and applied", count, heard)
    tracemalloc.start()
    kept = heard()
    size["image"] = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    assert len(kept.topics) == len(image.topics)
    lead = LeaderAndIsr(1, 1, 1, changes, tuple(image.brokers.values()))

    def commanded() -> bytes:
        return encode(wire.leader_and_isr_request(lead, LEAD_VERSION, "PLAINTEXT"), LEAD_VERSION)

    size["LeaderAndIsr"] = len(costs.of("LeaderAndIsr: written, for each replica", count, commanded)) / count
    dead = 17
    touched = sum(dead in change.partition.replicas for change in changes)
    live = {broker.id: broker for broker in image.brokers.values() if broker.id != dead}

    def dies() -> list[Effect]:
        machine = Controller(1, 1, 1, image, unclean_allowed=lambda config: False, rng=Random(1))
        return machine.brokers_changed(live)

    effects = costs.of("a broker dies: looked at, of all partitions", count, dies)
    machine = Controller(1, 1, 1, image, unclean_allowed=lambda config: False, rng=Random(1))
    begun = costs.of("a new controller decides what to tell", count, machine.elected)
    assert (
        sum(
            len(each.message.partitions)
            for each in begun
            if isinstance(each, SendMessage) and isinstance(each.message, UpdateMetadata)
        )
        == count * BROKERS
    )
    commits = [each for each in effects if isinstance(each, Commit)]
    assert sum(len(each.states) for each in commits) == touched
    return costs, size


async def of_zookeeper(address: str, count: int) -> dict[str, float]:
    """Microseconds, from asking to the answer, for a node when many are read or written."""
    took: dict[str, float] = {}
    node = paths.encode_state(state_node(image_of(PER_TOPIC).topics["topic-000000"].partitions[0], 1))
    async with zookeeper_store(ZooKeeperSettings(connect=address)) as store:
        root = f"/limits-{os.getpid()}"
        await store.commit([Create(root)])
        names = [f"{root}/{number}" for number in range(count)]
        for start in range(0, count, STATES_PER_COMMIT):
            await store.commit([Create(name, node) for name in names[start : start + STATES_PER_COMMIT]])
        begun = time.perf_counter()
        await store.get_many(names)
        took["a node read"] = (time.perf_counter() - begun) * 1e6 / count
        begun = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for start in range(0, count, STATES_PER_COMMIT):
                nursery.start_soon(store.commit, [Set(n, node, 0) for n in names[start : start + STATES_PER_COMMIT]])
        took["a node written"] = (time.perf_counter() - begun) * 1e6 / count
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--zookeeper", metavar="HOST:PORT")
    given = parser.parse_args()
    costs, size = measure(given.partitions)
    us = dict(costs.us)
    if given.zookeeper:
        us |= trio.run(of_zookeeper, given.zookeeper, min(given.partitions, 20_000))
    for what, cost in us.items():
        print(f"{what}: {cost:.2f} us")
    for what, many in size.items():
        print(f"{what}: {many:.0f} bytes")


if __name__ == "__main__":
    main()
