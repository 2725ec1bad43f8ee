"""A broker for groups that move fast, JVMs with members, and a maker of members that closes what it made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.harness.restartable import Restartable, start_restartable
from compat_tests.subjects.modern_groups.members import JavaMember, Jvm, KafkaPythonMember, Member, RdkafkaMember

QUICK_SETTINGS = (
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.assignment.interval.ms=0",
    "group.consumer.regex.refresh.interval.ms=10000",
    "group.consumer.migration.policy=bidirectional",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
)
SETTINGS = (*QUICK_SETTINGS, "group.consumer.session.timeout.ms=6000")
"""Where a session's end is waited for."""
PATIENT_SETTINGS = (*QUICK_SETTINGS, "group.consumer.session.timeout.ms=45000")
"""Nobody is thrown out because the machine stood still."""
Make = Callable[..., Any]


@pytest.fixture(scope="package")
def restartable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    """The broker of this folder."""
    started = start_restartable(request.config, tmp_path_factory.mktemp("modern"), PATIENT_SETTINGS)
    yield started
    started.stop()


@pytest.fixture(scope="package")
def client(restartable: Restartable) -> Iterator[ConfluentClient]:
    """For topics, records, and groups seen from outside."""
    made = ConfluentClient(restartable.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="package")
def jvms(restartable: Restartable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Jvm]]:
    """The JVM of a version of the clients, started when first asked for."""
    started: dict[str, Jvm] = {}

    def get(version: str) -> Jvm:
        if version not in started:
            log: Path = tmp_path_factory.mktemp(f"members-{version}") / "stderr.log"
            started[version] = Jvm(version, restartable.bootstrap, log)
        return started[version]

    yield get
    for one in started.values():
        one.stop()


@pytest.fixture
def make(restartable: Restartable, jvms: Callable[[str], Jvm]) -> Iterator[Make]:
    """`make(kind, group, *topics, regex=None, instance=None, assignor=None, protocol="consumer", **settings)`."""
    made: list[Member] = []

    def one(
        kind: str,
        group: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        protocol: str = "consumer",
        **settings: str,
    ) -> Member:
        config: dict[str, Any] = {key.replace("_", "."): value for key, value in settings.items()}
        if instance is not None:
            config["group.instance.id"] = instance
        member: Member
        if kind == "kafka-python":
            assert protocol == "classic"
            from kafka.coordinator.assignors.range import RangePartitionAssignor

            options = {"group_id": group, "partition_assignment_strategy": [RangePartitionAssignor]}
            member = KafkaPythonMember(restartable.bootstrap, options, topics)
        else:
            config |= {"group.id": group}
            config |= _protocol(kind, protocol, assignor)
            if kind == "librdkafka":
                names = [*topics, *([f"^{regex}"] if regex is not None else [])]
                member = RdkafkaMember(restartable.bootstrap, config, names)
            else:
                how, what = ("subscribe", topics) if regex is None else ("regex", (regex,))
                member = JavaMember(jvms(kind.removeprefix("Java ")), config, how, what)
        made.append(member)
        return member

    yield one
    for member in made:
        member.close()


def _protocol(kind: str, protocol: str, assignor: str | None) -> dict[str, str]:
    if protocol == "consumer":
        return {"group.protocol": "consumer", **({"group.remote.assignor": assignor} if assignor else {})}
    name = assignor or "range"
    if kind != "librdkafka":
        classes = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
        name = f"org.apache.kafka.clients.consumer.{classes[name]}"
    return {"partition.assignment.strategy": name}
