"""Apache Kafka 3.9.1 and ours in one cluster: one of theirs with two of ours, and the reverse.

Broker 1 is of one kind, brokers 2 and 3 of the other. Each side is controller, leader, follower, group coordinator;
each is killed and stopped; whatever happens, replicas have identical bytes, nothing is lost, and neither side's log
holds an error that is not explained here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.harness import Cluster, done
from compat_tests.clusters.nodes import KAFKA, KAFKA_ZK_JARS, OURS
from compat_tests.clusters.replicas import broken, differences
from compat_tests.faults.cluster.checker import check
from compat_tests.faults.cluster.load import FAST_CLIENT, Load, read_everything, watermarks
from compat_tests.faults.cluster.renumbering import renumbered

Names = Callable[..., str]
pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(600)]

SETTINGS = {
    # A broker asks this often to be let go, also while the controller stands still or another one is elected.
    "controlled.shutdown.max.retries": "20",
}
MIXES = {"one Kafka, two ours": [KAFKA, OURS, OURS], "one ours, two Kafka": [OURS, KAFKA, KAFKA]}
PATIENCE_S = 120
"""Ends what hangs; nothing takes so long."""
SIDES = {"the one": [1], "the two": [2, 3]}
# What Apache Kafka says with level ERROR when its peer is killed, paused or moved, in a cluster of its own as well.
EXPLAINED = (
    # A follower's fetch reaches a broker that has just given up or taken over the leadership, or is not there yet.
    "Error for partition",
    "Error when sending leader epoch request",
    # A controller was deposed while it worked: it says so and stops.
    "Controller moved to another broker",
    "ControllerMovedException",
    "NotControllerException",
    "actual expected epoch zk version",
    # Another broker knew it earlier than the deposed controller itself, whose request it refuses.
    "Received error STALE_CONTROLLER_EPOCH in",
    # A broker died, and it alone was in sync: brokers that sleep while another one is elected fall behind.
    "cannot become follower since the new leader -1 is unavailable",
    # The controller's request was on its way when the broker died.
    "fails to send a request to broker",
    # An idempotent producer's later request is at the new leader before the one that the old leader refused; it sends
    # both again.
    "OutOfOrderSequenceException",
)


@pytest.fixture(scope="module", params=list(MIXES))
def mixed(
    request: pytest.FixtureRequest, kinds: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running mixed cluster."""
    brokers = MIXES[request.param]
    if kinds == [KAFKA] * 3:
        if request.param != next(iter(MIXES)):
            pytest.skip("one cluster of three Apache Kafka brokers shows what these tests ask for")
        brokers = kinds
    with Cluster(tmp_path_factory.mktemp("mixed"), brokers, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(params=list(SIDES))
def side(request: pytest.FixtureRequest) -> list[int]:
    """The brokers of one side."""
    return SIDES[request.param]


@pytest.fixture(autouse=True)
def _no_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves a whole cluster and no error in a log that nobody can explain."""
    if "mixed" not in request.fixturenames:
        yield
        return
    cluster: Cluster = request.getfixturevalue("mixed")
    before = {number: len(node.log_text()) for number, node in cluster.nodes.items()}
    yield
    for number, node in cluster.nodes.items():
        if not node.alive:
            cluster.start_node(number)
    cluster.wait_healthy()
    said = {number: node.log_text()[before[number] :] for number, node in cluster.nodes.items()}
    assert not any(unexplained(text) for text in said.values()), "\n".join(
        f"{cluster.nodes[number]}: {line}" for number, text in said.items() for line in unexplained(text)
    )


def unexplained(log: str) -> list[str]:
    """Return the lines with level error, and the tracebacks, that nothing explains; a Java exception is told in the
    line behind.
    """
    lines = log.splitlines()
    found = []
    for at, line in enumerate(lines):
        if re.search(r"\bERROR\b|Traceback \(most recent|^\S+ \S*error\b", line):
            told = "\n".join(lines[at : at + 2])
            if not any(each in told for each in EXPLAINED):
                found.append("\n".join(lines[at : at + 12]))
    return found


# Without idempotence a batch that is sent again, as its answer does not come, may be there twice: it is waited for.
SENT_ONCE = {"socket.timeout.ms": 100_000, "request.timeout.ms": 100_000, "message.timeout.ms": 100_000}


def produce(bootstrap: str, topic: str, partitions: int, count: int = 300) -> int:
    """Send records of every codec, large and small, with and without keys and headers; return how many."""
    total = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        failed: list[object] = []
        producer = Producer(
            {**FAST_CLIENT, "bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", "linger.ms": 5}
            | (SENT_ONCE if codec == "gzip" else {"enable.idempotence": True})
        )
        for number in range(count):
            producer.produce(
                topic,
                b"value %d " % number + b"x" * (number % 50 * 20),
                key=b"key %d" % number if number % 3 else None,
                partition=number % partitions,
                headers=[("codec", codec.encode())] if number % 4 == 0 else None,
                on_delivery=lambda error, _, failed=failed: failed.append(error) if error else None,
            )
            total += 1
        assert producer.flush(PATIENCE_S) == 0
        assert not failed
    return total


def same_everywhere(cluster: Cluster, topic: str) -> None:
    """Assert that a topic's replicas have the same bytes, each a whole log."""
    assert differences(cluster, topic) == []
    for index in cluster.tree.assignment(topic):
        for node in cluster.nodes.values():
            assert broken(node.data / f"{topic}-{index}") == []


def test_every_role(mixed: Cluster, side: list[int], unique: Names) -> None:
    """Each broker leads a partition and follows two others, under each side's controller."""
    mixed.make_controller(side)
    topic = unique()
    mixed.create_topic(topic, replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    mixed.wait(lambda: [mixed.leader(topic, index) for index in range(3)] == [1, 2, 3], "each leads one")
    sent = produce(mixed.bootstrap, topic, 3)
    mixed.wait_healthy()
    same_everywhere(mixed, topic)
    consumer = Consumer({**FAST_CLIENT, "bootstrap.servers": mixed.bootstrap, "group.id": topic})
    ends = [watermarks(consumer, TopicPartition(topic, index)) for index in range(3)]
    consumer.close()
    assert sum(high for _, high in ends) == sent


def test_tree_has_the_same_texts(mixed: Cluster, unique: Names) -> None:
    """What one side's controller writes into ZooKeeper is, but for numbers and names, what the other's writes."""
    texts = []
    for numbers in SIDES.values():
        topic = untouched(mixed, numbers, unique)
        paths = [f"/brokers/topics/{topic}", f"/config/topics/{topic}", "/controller"]
        paths += [f"/brokers/topics/{topic}/partitions/{index}/state" for index in range(2)]
        joined = "\n".join(json.dumps(mixed.tree.json(path), sort_keys=True) for path in paths)
        for pattern, name in (
            (r'"topic_id": "[\w-]{22}"', "ID"),
            (r'"(brokerid|controller_epoch)": \d+', r"\1"),
            (r'"timestamp": "\d+"', "TIME"),
            (r'"2": \[[\d, ]+\]', "PLACED"),
        ):
            joined = re.sub(pattern, name, joined)
        texts.append(joined)
    assert texts[0] == texts[1]


def untouched(mixed: Cluster, numbers: list[int], unique: Names) -> str:
    """Make a topic under one side's controller, and expand it. Who stands still meanwhile is taken out of the states of
    its partitions, and put back behind the others: another topic then.
    """
    for _ in range(5):
        controller = mixed.make_controller(numbers)
        topic = unique()
        mixed.create_topic(topic, replicas=[[1, 2], [3, 2]], retention_ms=86400000)
        mixed.ask(
            lambda admin, topic=topic: admin.create_partitions([NewPartitions(topic, 3)]), KafkaError.INVALID_PARTITIONS
        )
        mixed.wait(lambda topic=topic: len(mixed.tree.states(topic)) == 3, "three partitions")
        mixed.wait_healthy()
        states = mixed.tree.states(topic)
        if mixed.tree.controller() == controller and all(state and state.version == 0 for state in states.values()):
            return topic
    raise AssertionError(f"{states}: they are written again and again\n{mixed.logs()}")


def test_registration(mixed: Cluster) -> None:
    """Both kinds of brokers write the same registration, but for addresses, ids, times, and the feature levels that a
    broker of 3.9.1 does not have.
    """
    texts = set()
    features = []
    mixed.wait_registered()
    for number, node in mixed.nodes.items():
        told = mixed.tree.json(f"/brokers/ids/{number}")
        features.append(told.pop("features"))
        text = json.dumps(told, sort_keys=True)
        text = text.replace(node.bootstrap, "ADDRESS").replace(f'"port": {node.address[1]}', "PORT")
        texts.add(re.sub(r'"timestamp": "\d+"', "TIME", text))
    assert len(texts) == 1, texts
    assert {} in features
    ours = [node.kind == OURS for node in mixed.nodes.values()]
    assert [each.get("transaction.version") == {"min_version": 1, "max_version": 2} for each in features] == ours


def test_leader_killed(mixed: Cluster, side: list[int], unique: Names) -> None:
    """kill -9 of a leader: the other kind takes over, and nothing is lost when the killed one returns."""
    victim = side[0]
    takers = [number for number in mixed.nodes if number not in side]
    topic = unique()
    others = [*takers, *(number for number in side if number != victim)]
    mixed.create_topic(topic, replicas=[[victim, *others], [victim, *others]])
    load = Load(mixed.bootstrap, topic, 2, log=mixed.directory / f"{topic}.log")
    load.start()
    assert load.wait_acknowledged({0, 1}, PATIENCE_S) is not None
    mixed.wait_healthy()  # the first of the others takes over if it is in sync
    mixed.nodes[victim].kill()
    mixed.wait(lambda: mixed.leader(topic, 0) in takers, "the other kind leads")
    assert load.wait_acknowledged({0, 1}, PATIENCE_S) is not None, mixed.logs()
    mixed.start_node(victim)
    mixed.wait_healthy()
    assert load.wait_acknowledged({0, 1}, PATIENCE_S) is not None, mixed.logs()
    judged(mixed, load, topic, 2)


def judged(cluster: Cluster, load: Load, topic: str, partitions: int) -> None:
    """End a load; nothing may be lost, and the replicas are the same."""
    load.stop()
    assert load.errors == []
    final = read_everything(cluster.bootstrap, topic, partitions)
    findings = check(load.sends, final, load.seen, renumbered(load.log))
    assert findings.good, str(findings)  # which is longer than what pytest would say
    assert findings.counts["failed"] == findings.counts["unknown"] == 0, str(findings)
    same_everywhere(cluster, topic)


def test_controller_killed(mixed: Cluster, side: list[int], unique: Names) -> None:
    """kill -9 of the controller: another takes over with a higher epoch, sees the loss, and creates topics."""
    victim = mixed.make_controller(side)
    epoch = mixed.tree.controller_epoch()
    mixed.nodes[victim].kill()
    mixed.wait(lambda: mixed.tree.controller() not in (None, victim), "another controller")
    assert mixed.tree.controller_epoch() > epoch
    topic = unique()
    remaining = [number for number in mixed.nodes if number != victim]
    mixed.create_topic(topic, replicas=[remaining, remaining[::-1]])
    assert produce(mixed.bootstrap, topic, 2, 50) == 250
    mixed.start_node(victim)
    mixed.wait_healthy()


def test_controlled_shutdown(mixed: Cluster, side: list[int], unique: Names) -> None:
    """A broker that is asked to stop hands its leaderships over first: hardly a pause, under each side's controller."""
    number = side[0]
    for controller in SIDES.values():
        if controller == [number]:
            continue
        mixed.make_controller([other for other in controller if other != number])
        topic = unique()
        mixed.create_topic(topic, replicas=[[number, *(other for other in mixed.nodes if other != number)]])
        load = Load(mixed.bootstrap, topic, 1, log=mixed.directory / f"{topic}.log")
        load.start()
        assert load.wait_acknowledged({0}, PATIENCE_S) is not None
        mixed.wait_healthy()  # there is somebody to hand over to
        assert mixed.nodes[number].stop() in (0, 143), mixed.nodes[number].log_tail()
        moved = mixed.tree.state(topic, 0)
        assert moved is not None
        assert moved.leader not in (-1, number)
        assert number not in moved.isr
        assert load.wait_acknowledged({0}, PATIENCE_S) is not None, mixed.logs()
        mixed.start_node(number)
        mixed.wait_healthy()
        judged(mixed, load, topic, 1)


def test_group_fails_over(mixed: Cluster, side: list[int], unique: Names) -> None:
    """The broker that coordinates a group is killed: a member goes on where it had committed, with the other kind.

    Brokers move leaderships back to where they belong, and the group's coordination with it, whenever they find time
    for that: any question about the group may come at a moment when it has no coordinator.
    """
    topic = unique()
    mixed.create_topic(topic, 2)
    sent = produce(mixed.bootstrap, topic, 2, 40)
    group, coordinator = coordinated_by(mixed, side, unique)
    consumer = Consumer(
        {
            **FAST_CLIENT,
            "bootstrap.servers": mixed.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 60000,
        }
    )
    consumer.subscribe([topic])
    seen: list[tuple[int, int]] = []

    def read_until(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(set(seen)) < count:
            assert time.monotonic() < deadline, f"{len(set(seen))} of {count} records\n{mixed.logs()}"
            take()

    def take() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((message.partition() or 0, message.offset() or 0))

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            take()  # a member that must join again does so while it polls
            raise

    read_until(sent // 2)
    patiently(mixed, commit)
    committed, mark = offsets(mixed, consumer, topic), len(seen)
    mixed.nodes[coordinator].kill()
    mixed.wait_gone(coordinator)
    again = Consumer({**FAST_CLIENT, "bootstrap.servers": mixed.bootstrap, "group.id": group})
    assert offsets(mixed, again, topic) == committed
    again.close()
    assert coordinator != coordinator_of(mixed, group)
    read_until(sent)
    # A member whose session ended meanwhile, on a machine that had no time for it, begins again where it committed.
    assert len(set(seen)) == sent
    assert all(offset >= committed[partition] for partition, offset in seen[mark:])

    def is_committed() -> bool:
        if sum(offsets(mixed, consumer, topic)) == sent:
            return True
        take()
        commit()
        return False

    mixed.wait(is_committed, "all is committed")
    mixed.start_node(coordinator)
    mixed.wait_healthy()
    assert sum(offsets(mixed, consumer, topic)) == sent
    consumer.close()


def patiently(cluster: Cluster, question: Callable[[], Any]) -> Any:
    """The answer of a group's coordinator; asked again while there is none, or it is just moving."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return question()
        except KafkaException as refusal:
            if time.monotonic() > deadline:
                raise AssertionError(cluster.logs()) from refusal
            time.sleep(0.2)


def offsets(cluster: Cluster, consumer: Consumer, topic: str) -> list[int]:
    """Return the group's committed offsets of partitions 0 and 1."""

    def ask() -> list[int]:
        found = consumer.committed([TopicPartition(topic, index) for index in range(2)], timeout=20)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        return [one.offset for one in found]

    return list(patiently(cluster, ask))


def coordinator_of(cluster: Cluster, group: str) -> int:
    """Return the broker that coordinates a group, as the cluster sees it now."""

    def ask() -> int:
        admin = cluster.admin
        return int(done(admin.describe_consumer_groups([group], request_timeout=10))[group].coordinator.id)

    return int(patiently(cluster, ask))


def coordinated_by(cluster: Cluster, numbers: Sequence[int], unique: Names) -> tuple[str, int]:
    """Return the name of a group that one of these brokers coordinates, and which."""
    for attempt in range(60):
        group = unique(f"group-{attempt}")
        found = coordinator_of(cluster, group)
        if found in numbers:
            return group, found
    raise AssertionError(f"no group is coordinated by one of {list(numbers)}")


def test_life_of_a_topic(mixed: Cluster, side: list[int], unique: Names, warm_jvms: WarmJvms) -> None:
    """Created, configured, expanded, moved, deleted under one side's controller: all brokers follow."""
    mixed.make_controller(side)
    tools = Tools(mixed.bootstrap, warm_jvms, KAFKA_ZK_JARS)
    topic = unique()
    mixed.create_topic(topic, replicas=[[1, 2], [2, 3]], retention_ms=86400000)
    sent = produce(mixed.bootstrap, topic, 2, 60)
    # Configuration: every broker says the same.
    tools("kafka-configs", "--alter", "--topic", topic, "--add-config", "max.message.bytes=2000,retention.ms=7200000")
    for node in mixed.nodes.values():
        mixed.wait(
            lambda node=node: configured(mixed, node.bootstrap, topic) == ("2000", "7200000"),
            f"{node} knows the configuration",
        )
    # A broker describes what is stored, which may be a moment ahead of what its logs go by.
    deadline = time.monotonic() + PATIENCE_S
    while taken(mixed.bootstrap, topic):
        sent += 1
        assert time.monotonic() < deadline
    # Expansion.
    mixed.ask(lambda admin: admin.create_partitions([NewPartitions(topic, 4)]), KafkaError.INVALID_PARTITIONS)
    mixed.wait(lambda: len(mixed.admin.list_topics(topic, timeout=20).topics[topic].partitions) == 4, "four partitions")
    mixed.wait_healthy()
    # Reassignment: partition 0 leaves broker 1, partition 1 leaves broker 2.
    moves = ",".join(
        f'{{"topic":"{topic}","partition":{index},"replicas":{replicas}}}'
        for index, replicas in enumerate(([3, 2], [1, 3]))
    )
    file = mixed.directory / f"{topic}.json"
    file.write_text(f'{{"version":1,"partitions":[{moves}]}}')
    tools("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(file))
    mixed.wait(
        lambda: (
            [mixed.tree.assignment(topic)[index] for index in range(2)] == [[3, 2], [1, 3]]
            and "is still in progress" not in tools("kafka-reassign-partitions", "--list")
        ),
        "the partitions have moved",
        pause=1,
    )
    mixed.wait_healthy()
    mixed.wait(lambda: not (mixed.nodes[1].data / f"{topic}-0").exists(), "broker 1 has dropped its replica")
    mixed.wait(lambda: not (mixed.nodes[2].data / f"{topic}-1").exists(), "broker 2 has dropped its replica")
    assert differences(mixed, topic) == []
    consumer = Consumer({**FAST_CLIENT, "bootstrap.servers": mixed.bootstrap, "group.id": topic})
    highs = [watermarks(consumer, TopicPartition(topic, index))[1] for index in range(4)]
    consumer.close()
    assert sum(highs) == sent
    # Deletion: the tree and every disk.
    mixed.ask(lambda admin: admin.delete_topics([topic]), KafkaError.UNKNOWN_TOPIC_OR_PART)
    mixed.wait(lambda: topic not in mixed.tree.topics(), "the topic is gone from the tree")
    # What is left of it goes behind it, in several steps.
    mixed.wait(lambda: mixed.tree.json(f"/config/topics/{topic}") is None, "its configuration is gone")
    assert mixed.tree.children(f"/config/topics/{topic}") == []
    mixed.wait(lambda: mixed.tree.children("/admin/delete_topics") == [], "the order is gone")
    for node in mixed.nodes.values():
        mixed.wait(lambda node=node: not list(node.data.glob(f"{topic}-?")), f"{node} has deleted its replicas")
        mixed.wait(
            lambda node=node: topic not in mixed.admin_of(node.bootstrap).list_topics(timeout=20).topics,
            f"{node} does not know it any more",
        )


def configured(cluster: Cluster, bootstrap: str, topic: str) -> tuple[str, str]:
    """Return max.message.bytes and retention.ms as one broker describes them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = cluster.admin_of(bootstrap)
    found = done(admin.describe_configs([resource], request_timeout=20))[resource]
    return found["max.message.bytes"].value, found["retention.ms"].value


def taken(bootstrap: str, topic: str) -> bool:
    """Send one record of 4,000 bytes; whether it was not refused as too large."""
    failed: list[KafkaError] = []
    producer = Producer({**FAST_CLIENT, **SENT_ONCE, "bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 4000, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed or failed[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    return not failed
