"""Apache Kafka's own classes of streams groups, asked in one JVM by the program StreamsOracle.java beside this file;
and our values as it reads and writes them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from barnabas.coordinator.group.streams.configured import ConfiguredTopology
from barnabas.coordinator.group.streams.reconcile import MemberState, Standing
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks, TaskSet
from barnabas.coordinator.group.streams.topology import TopicInfo, Topology
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import classpath, java

PROGRAM = Path(__file__).with_name("StreamsOracle.java")


def ask(questions: Iterable[dict[str, Any]]) -> list[Any]:
    """The answers, in order."""
    jars = os.environ.get("BARNABAS_KAFKA_CLASSPATH") or classpath(KAFKA_JARS)
    # A small heap and the serial collector keep the JVM out of the way of other tests.
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    lines = "\n".join(map(json.dumps, questions))
    command = [*java(), *options, "-cp", jars, str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def told_tasks(tasks: TaskSet) -> dict[str, list[int]]:
    return {subtopology: sorted(partitions) for subtopology, partitions in tasks.items()}


def told_roles(tasks: Tasks) -> list[Any]:
    return [told_tasks(tasks.active), told_tasks(tasks.standby), told_tasks(tasks.warmup)]


def told_held(held: HeldTasks) -> list[Any]:
    active = {
        key: {str(partition): epoch for partition, epoch in epochs.items()} for key, epochs in held.active.items()
    }
    return [active, told_tasks(held.standby), told_tasks(held.warmup)]


def told_standing(standing: Standing | None) -> list[Any] | None:
    if standing is None:
        return None
    epoch, previous_epoch, state, assigned, revoking = standing
    return [epoch, previous_epoch, int(state), told_held(assigned), told_held(revoking)]


def read_standing(told: list[Any]) -> Standing:
    epoch, previous_epoch, state, assigned, revoking = told
    return Standing(epoch, previous_epoch, MemberState.stored(state), read_held(assigned), read_held(revoking))


def read_held(told: list[Any]) -> HeldTasks:
    active = {key: {int(partition): epoch for partition, epoch in epochs.items()} for key, epochs in told[0].items()}
    return HeldTasks(active, read_tasks(told[1]), read_tasks(told[2]))


def read_roles(told: list[Any]) -> Tasks:
    return Tasks(*map(read_tasks, told))


def read_tasks(told: Mapping[str, list[int]]) -> dict[str, frozenset[int]]:
    return {subtopology: frozenset(partitions) for subtopology, partitions in told.items()}


def told_topology(topology: Topology) -> dict[str, Any]:
    """As the value of record 23 is written down as JSON there."""
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopologyId": each.subtopology_id,
                "sourceTopics": list(each.source_topics),
                "sourceTopicRegex": list(each.source_topic_regex),
                "stateChangelogTopics": list(_infos(each.state_changelog_topics)),
                "repartitionSinkTopics": list(each.repartition_sink_topics),
                "repartitionSourceTopics": list(_infos(each.repartition_source_topics)),
                "copartitionGroups": [
                    {
                        "sourceTopics": list(group.source_topics),
                        "sourceTopicRegex": list(group.source_topic_regex),
                        "repartitionSourceTopics": list(group.repartition_source_topics),
                    }
                    for group in each.copartition_groups
                ],
            }
            for each in topology.subtopologies.values()
        ],
    }


def told_configured(configured: ConfiguredTopology) -> dict[str, Any]:
    """Without details, which are our own words."""
    return {
        "status": -1 if configured.problem is None else int(configured.problem.status),
        "subtopologies": {
            subtopology_id: [
                each.tasks,
                {t.name: t.partitions for t in each.repartition_source_topics + each.state_changelog_topics},
            ]
            for subtopology_id, each in (configured.subtopologies or {}).items()
        },
        "wanted": {
            topic.name: [topic.partitions, topic.replication_factor or -1, dict(topic.configs)]
            for topic in configured.wanted.values()
        },
    }


def _infos(topics: Iterable[TopicInfo]) -> Iterator[dict[str, Any]]:
    for topic in topics:
        yield {
            "name": topic.name,
            "partitions": topic.partitions,
            "replicationFactor": topic.replication_factor,
            "topicConfigs": [{"key": key, "value": value} for key, value in topic.configs],
        }
