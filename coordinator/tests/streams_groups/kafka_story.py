"""A streams group's story, told twice: to Apache Kafka 4.3.1, whose answers and records are in data/kafka-4.3.1.txt,
and to our group. `python -m barnabas.coordinator.tests.streams_groups.kafka_story HOST:PORT` writes that file anew,
from a broker that has no group "g" yet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from barnabas.coordinator.tests.streams_groups.streams_group_kit import (
    Request,
    listed,
    shown,
    subtopology,
    topology,
)
from barnabas.kproto.messages import StreamsGroupHeartbeatResponse

FILE: Final = Path(__file__).parent / "data" / "kafka-4.3.1.txt"
HERE = Request.Endpoint(host="h1", port=1)
APPLICATION = topology(subtopology("0", ["in"], changelogs=["g-cl"]))
SMALL = topology(subtopology("0", ["in"]))
COUNTED = topology(subtopology("0", ["in"], changelogs=["q"]))
COUNTED.subtopologies[0].state_changelog_topics[0].partitions = 3
LOOP = topology(subtopology("0", (), reads=["r1"], writes=["r1"]))

Step = tuple[str, int, dict[str, Any]]
STORY: tuple[Step, ...] = (
    ("a", 0, {"user_endpoint": HERE}),
    ("a", 2, {"owned": ""}),  # by now the changelog is there
    ("a", 3, {}),
    ("b", 0, {"process_id": "P2", "user_endpoint": HERE}),
    ("a", 3, {}),
    ("a", 3, {}),
    ("a", 3, {"owned": "0_0 0_1"}),
    ("b", 4, {}),
    ("a", 4, {}),
    ("b", 4, {}),
    ("b", 3, {"owned": ""}),
    ("b", 3, {}),
    ("a", 9, {}),
    ("a", 4, {"active_tasks": []}),
    ("a", 4, {"topology": APPLICATION}),
    ("a", 4, {"owned": "0_9"}),
    ("a", 4, {"owned": "5_0"}),
    ("c", 4, {}),
    ("c", -1, {}),
    ("a", -2, {}),
    ("a", -3, {}),
    ("x", 0, {"rebalance_timeout_ms": -1}),
    ("x", 0, {"topology": None}),
    ("x", 0, {"instance_id": "i"}),
    ("x", 0, {"owned": "0_0"}),
    ("x", 0, {"topology": SMALL}),
    ("x", 0, {"topology": COUNTED}),
    ("a", 4, {"shutdown_application": True}),
    ("b", 4, {}),
    ("b", -1, {}),
    ("a", 4, {}),
    ("a", -1, {}),
    ("a", 0, {}),
    ("a", -1, {}),
    ("y", 0, {"topology": LOOP}),
)


def fields_of(step: Step) -> dict[str, Any]:
    """What is sent beside member and epoch."""
    name, epoch, given = step
    joining = {
        "topology": APPLICATION,
        "rebalance_timeout_ms": 60_000,
        "process_id": f"P-{name}",
        "endpoint_information_epoch": -1,
        "owned": "",
        "client_tags": [],
    }
    return joining | given if epoch == 0 else given


def summary(answer: StreamsGroupHeartbeatResponse) -> str:
    """An answer on one line, without texts and intervals."""
    endpoints = answer.partitions_by_user_endpoint
    told = [
        int(answer.error_code),
        answer.member_epoch,
        f"{shown(answer.active_tasks)}/{shown(answer.standby_tasks)}/{shown(answer.warmup_tasks)}",
        [int(status.status_code) for status in answer.status or ()],
        answer.endpoint_information_epoch,
        "-"
        if endpoints is None
        else [[[(each.topic, sorted(each.partitions)) for each in part.active_partitions]] for part in endpoints],
    ]
    return " | ".join(map(str, told))


def tell(beat: Callable[[str, int, dict[str, Any]], StreamsGroupHeartbeatResponse]) -> list[str]:
    """The whole story; what is answered."""
    return [summary(beat(step[0], step[1], fields_of(step))) for step in STORY]


def _capture(address: tuple[str, int]) -> None:
    from barnabas.coordinator import partition_for
    from barnabas.kproto.messages import (
        CreateTopicsRequest,
        FetchRequest,
        FindCoordinatorRequest,
        IncrementalAlterConfigsRequest,
    )
    from barnabas.kproto.records import iter_records
    from compat_tests.subjects.access.connection import Connection

    connection = Connection(address)

    def ask(request: Any, version: int) -> Any:
        while True:
            answer = connection.ask(request, version)
            if getattr(answer, "error_code", 0) not in (14, 15, 16):
                return answer
            time.sleep(0.3)

    topic = CreateTopicsRequest.CreatableTopic(name="in", num_partitions=4, replication_factor=1)
    ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=f"streams.{name}", value=value)
        for name, value in (
            ("initial.rebalance.delay.ms", "0"),
            ("assignment.interval.ms", "0"),
            ("num.standby.replicas", "1"),
        )
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=32, resource_name="g", configs=configs)
    ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    ask(FindCoordinatorRequest(key="g"), 3)

    def beat(name: str, epoch: int, fields: dict[str, Any]) -> Any:
        sent = dict(fields)
        owned = sent.pop("owned", None)
        if owned is not None:
            sent = {"active_tasks": listed(owned), "standby_tasks": [], "warmup_tasks": []} | sent
        answer = ask(Request(group_id="g", member_id=name, member_epoch=epoch, **sent), 0)
        time.sleep(1.5 if answer.status else 0)
        return answer

    lines = [f"answer {each}" for each in tell(beat)]
    wanted = FetchRequest.FetchPartition(partition=partition_for("g", 50), fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic="__consumer_offsets", partitions=[wanted])],
    )
    data = bytes(ask(fetch, 11).responses[0].partitions[0].records)
    position = 0
    while position + 12 < len(data):
        for record in iter_records(data, position):
            assert record.key is not None
            lines.append(f"record {record.key.hex()} {'-' if record.value is None else record.value.hex()}")
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    _capture((host, int(port)))
