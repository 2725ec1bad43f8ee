"""kill -9 under share consumers: nothing that was acknowledged to the producer is lost, nothing that was acknowledged
by a member comes again, and nothing comes more often than the limit says.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.harness import Cluster
from compat_tests.clusters.kraft import KRaftCluster
from compat_tests.clusters.nodes import OURS
from compat_tests.harness import dump_log
from compat_tests.harness.checks import wait_until
from compat_tests.harness.members_jvm import MembersJvm
from compat_tests.harness.restartable import start_restartable
from compat_tests.subjects.share_groups.groups import SETTINGS, configure
from compat_tests.subjects.share_groups.members import SOURCE, JavaShareMember

LIMIT = 5
PARTITIONS = 3
ROUND_S = 3.0
ROUNDS = 4
REPLICATED = {
    **dict(each.split("=", 1) for each in SETTINGS),
    "share.coordinator.state.topic.replication.factor": "3",
}
pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(900)]


class Load:
    """A producer that numbers its records, in a thread; `acknowledged`: numbers that the broker has confirmed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[int] = set()
        self._topic = topic
        self._ends = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            for _ in range(10):
                self._produce(number)
                number += 1
            self._producer.poll(0.02)
        assert self._producer.flush(120) == 0

    def _produce(self, number: int) -> None:
        def told(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                self.acknowledged.add(number)

        self._producer.produce(self._topic, str(number), partition=number % PARTITIONS, on_delivery=told)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


@contextmanager
def working(bootstrap: str, group: str, topic: str, log: Path) -> Iterator[list[JavaShareMember]]:
    """Members that accept what they get."""
    jvm = MembersJvm(SOURCE, "4.3.1", log)
    members = [
        JavaShareMember(jvm, {"bootstrap.servers": bootstrap, "group.id": group, "max.poll.records": "50"}, [topic])
        for _ in range(3)
    ]
    for member in members:
        member.run()
    try:
        yield members
    finally:
        jvm.stop()


def judge(members: Sequence[JavaShareMember], load: Load) -> None:
    """When all has come."""
    wait_until(lambda: len(load.acknowledged) > 1000, "enough records", timeout=120)
    load.stop()

    def missing() -> set[int]:
        return load.acknowledged - {int(one.value) for member in members for one in member.records()}

    wait_until(lambda: not missing(), "every record", timeout=120, every=0.5)
    assert [member.failure() for member in members] == ["", "", ""]
    deliveries: Counter[tuple[int, int]] = Counter()
    settled: set[tuple[int, int]] = set()
    again = []
    for what, one in members[0].events():
        place = one.partition, one.offset
        if what == "G":
            deliveries[place] += 1
            assert one.count <= LIMIT
            if place in settled:
                again.append(one)
        elif one.count == 0:
            settled.add(place)
    assert not again, f"acknowledged, and delivered again: {again[:10]}"
    # What a crash makes forget is a delivery that nothing was written about.
    assert max(deliveries.values()) <= LIMIT + ROUNDS
    print(f"{len(load.acknowledged)} records, {sum(deliveries.values())} deliveries, {len(settled)} acknowledged")


def test_of_one_broker(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    broker = start_restartable(pytestconfig, tmp_path / "broker", SETTINGS)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
        configure(broker.bootstrap, "g")
        with working(broker.bootstrap, "g", "t", tmp_path / "members.log") as members:
            load = Load(broker.bootstrap, "t")
            wait_until(lambda: any(member.records() for member in members), "the first record")
            for _ in range(ROUNDS):
                time.sleep(ROUND_S)
                broker.kill()
                broker.start()
            judge(members, load)
    finally:
        broker.stop()
    dumped(broker.data)


def dumped(data: Path) -> None:
    """DumpLogSegments knows every record, and says what Apache Kafka would read out of it."""
    for topic, option, wanted in (
        ("__share_group_state", "--share-group-state-decoder", ("deliveryState", "snapshotEpoch", '"groupId":"g"')),
        ("__consumer_offsets", "--offsets-decoder", ("subscribedTopicNames", "initializedTopics", '"groupId":"g"')),
    ):
        logs = [path for path in sorted(data.glob(f"{topic}-*/*.log")) if path.stat().st_size]
        assert logs
        lines = dump_log.run(logs, "--deep-iteration", option, expect=0)
        assert dump_log.wrong(lines) == []
        text = "".join(lines).replace(" ", "")
        assert [each for each in wanted if each not in text] == [], text[-2000:]


def test_of_leaders_and_coordinators(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Three brokers on the store of one machine; with `--peer kafka` three nodes of Apache Kafka 4.3.1 with KRaft."""
    if pytestconfig.getoption("--peer") == "kafka":
        with KRaftCluster(tmp_path / "cluster", settings=REPLICATED) as theirs:
            leaders_are_killed(theirs, tmp_path / "members.log")
    else:
        with Cluster(tmp_path / "cluster", [OURS] * 3, local=True, settings=REPLICATED) as ours:
            leaders_are_killed(ours, tmp_path / "members.log")


def test_of_leaders_and_coordinators_with_zookeeper(
    pytestconfig: pytest.Config, warm_jvms: WarmJvms, tmp_path: Path
) -> None:
    if pytestconfig.getoption("--peer") == "kafka":
        pytest.skip("Apache Kafka with ZooKeeper has no share groups")
    with Cluster(tmp_path / "cluster", [OURS] * 3, settings=REPLICATED) as cluster:
        Tools(cluster.bootstrap, warm_jvms)("kafka-features", "upgrade", "--feature", "share.version=1")
        leaders_are_killed(cluster, tmp_path / "members.log")


def leaders_are_killed(cluster: Cluster | KRaftCluster, log: Path) -> None:
    """One after the other, under load; at last a coordinator of share partitions."""
    cluster.create_topic("t", partitions=PARTITIONS)
    configure(cluster.bootstrap, "g")
    with working(cluster.bootstrap, "g", "t", log) as members:
        load = Load(cluster.bootstrap, "t")
        wait_until(lambda: any(member.records() for member in members), "the first record", timeout=120)
        for number in range(ROUNDS):
            time.sleep(ROUND_S)
            last = number == ROUNDS - 1
            victim = cluster.leader("__share_group_state", 0) if last else cluster.leader("t", number % PARTITIONS)
            cluster.node(victim).kill()
            time.sleep(ROUND_S)
            cluster.node(victim).start()
            cluster.wait_healthy()
        judge(members, load)
