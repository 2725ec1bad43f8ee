"""A share group in a log directory that goes from Apache Kafka 4.3.1 to our broker and back: each goes on where the
other has stopped, and delivers what is not settled, that and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.harness import dump_log
from compat_tests.subjects.exchange import places
from compat_tests.subjects.exchange.places import Serving
from compat_tests.subjects.share_groups.groups import SETTINGS, configure
from compat_tests.subjects.share_groups.members import ACCEPT, REJECT, RELEASE, Got, RdkafkaShareMember, next_poll

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]

TOPIC, GROUP = "shared", "g"
SHARED = {key: value for key, _, value in (setting.partition("=") for setting in SETTINGS)} | {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}


def produced(bootstrap: str, numbers: Sequence[int]) -> None:
    """One batch: a flush does not linger."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5000})
    for number in numbers:
        producer.produce(TOPIC, str(number), partition=0)
    assert producer.flush(60) == 0


def settled(bootstrap: str, expected: set[int], accepted: set[int], rejected: set[int]) -> None:
    """A member gets what is expected, that and nothing else, and says what becomes of it; the rest it gives back."""
    config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with closing(RdkafkaShareMember(config, [TOPIC])) as member:
        seen: set[int] = set()
        while seen < expected:
            found = next_poll(member)
            seen |= {one.offset for one in found}
            for what, wanted in ((ACCEPT, accepted), (REJECT, rejected), (RELEASE, expected - accepted - rejected)):
                member.say(what, _among(found, wanted))
            assert member.commit() == {0}
        assert seen == expected


def _among(found: Sequence[Got], wanted: set[int]) -> list[Got]:
    return [one for one in found if one.offset in wanted]


def test_there_and_back(tmp_path: Path) -> None:
    kafka = places.kraft(tmp_path / "kafka", **SHARED)
    left = set(range(60))
    with Serving(kafka):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        configure(kafka.bootstrap, GROUP)
        produced(kafka.bootstrap, range(60))
        accepted, rejected = set(range(0, 60, 3)) | set(range(10)), {59}
        settled(kafka.bootstrap, left, accepted, rejected)
        left -= accepted | rejected
    back = places.copy(kafka.data, tmp_path / "back")

    ours = places.ours_alone(kafka.directory, **SHARED)
    with Serving(ours):
        accepted, rejected = {offset for offset in left if offset % 3 == 1}, {58}
        settled(ours.bootstrap, left, accepted, rejected)
        left -= accepted | rejected
        produced(ours.bootstrap, range(60, 80))
        left |= set(range(60, 80))
    assert dump_log.complaints([ours.data]) == []

    again = places.kraft(back, **SHARED)
    places.take_over(ours.data, again.data, places.ids_of(ours.data))
    with Serving(again):
        settled(again.bootstrap, left, left, set())
