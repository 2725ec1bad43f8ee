"""A directory that Apache Kafka filled is opened by our broker, which shows the same; and it goes back again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.cluster.nodes import KafkaNode, OurNode
from compat_tests.exchange import picture, places
from compat_tests.exchange.filler import SMALL_INDEXES, Abilities, Filler, formats
from compat_tests.exchange.picture import Picture
from compat_tests.exchange.places import Serving
from compat_tests.zookeeper import ZooKeeper, zookeeper

pytestmark = pytest.mark.slow

# The oldest protocol between brokers with which 3.9.1 still writes message formats 0 and 1.
OLD_PROTOCOL = {"inter.broker.protocol.version": "2.8"}


def seen_alone(directory: Path) -> Picture:
    """What our broker without ZooKeeper shows of `directory`/data."""
    with Serving(places.ours_alone(directory)) as ours:
        return picture.take(ours.bootstrap)


def check_filling(filled: Picture) -> None:
    """What the tests rest on is there: a comparison of nothing with nothing proves nothing."""
    records = {place: seen for (isolation, place), seen in filled.records.items() if isolation == "read_uncommitted"}
    committed = {place: seen for (isolation, place), seen in filled.records.items() if isolation == "read_committed"}
    assert len(records["compacted", 0]) < 0.5 * filled.facts["end", "compacted", "0", "read_uncommitted"][0]
    assert any(seen.value is None for seen in records["compacted", 0])
    assert filled.facts["start", "records-deleted", "0", "read_uncommitted"][0] == 33
    assert {seen.timestamp_type for seen in records["append-time", 0]} == {2}
    members = filled.facts["group", "static", "state"][2]
    assert members[0][0] == "instance-1"
    assert len(committed["transactions", 0]) < len(records["transactions", 0])
    assert len(committed["left-open", 0]) == 5
    assert len(records["left-open", 0]) == 16


def test_kraft(tmp_path: Path) -> None:
    """4.3.1: topics and their settings are known from its metadata log."""
    with Serving(places.kraft(tmp_path / "kafka")) as kafka:
        filler = Filler(kafka.bootstrap, kafka.data, Abilities(small=SMALL_INDEXES, new_groups=True))
        filler.fill()
        filled = picture.take(kafka.bootstrap)
        killed = places.copy_as_killed(kafka, tmp_path / "killed")
    check_filling(filled)
    # Members of KIP-848 groups are not known here; their offsets are.
    del filled.facts["group", "new", "state"]
    for directory in (killed, kafka.directory):
        found = seen_alone(directory)
        del found.facts["group", "new", "state"]
        picture.assert_same(filled, found)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ZooKeeper]:
    with zookeeper(tmp_path / "zookeeper") as server:
        yield server


def test_zookeeper_there_and_back(tmp_path: Path, tree: ZooKeeper) -> None:
    """3.9.1, with message formats 0 and 1: the directory alone, and with the tree; then appended to on both sides."""
    old = Abilities(old_formats=True)
    kafka = places.with_zookeeper(KafkaNode, tmp_path / "kafka", tree.connect, OLD_PROTOCOL)
    ours = places.with_zookeeper(OurNode, tmp_path / "kafka", tree.connect, OLD_PROTOCOL)
    with Serving(kafka):
        filler = Filler(kafka.bootstrap, kafka.data, old)
        filler.fill()
        filled = picture.take(kafka.bootstrap)
        killed = places.copy_as_killed(kafka, tmp_path / "killed")
    check_filling(filled)
    assert {0} == formats(kafka.data, "format-0")
    assert {1} == formats(kafka.data, "format-1") == formats(kafka.data, "compacted-format-1")
    assert {0, 2} == formats(kafka.data, "format-0-then-2")
    assert {1, 2} == formats(kafka.data, "format-1-then-2")
    clean = places.copy(kafka.data, tmp_path / "clean")

    for directory in (killed, clean):
        picture.assert_same(known_alone(filled), known_alone(seen_alone(directory)))

    with Serving(ours):
        picture.assert_same(served(filled), served(picture.take(ours.bootstrap)))
        Filler(ours.bootstrap, ours.data, old, seed=2).more()
        ours_added = picture.take(ours.bootstrap)
    with Serving(kafka):
        picture.assert_same(served(ours_added), served(picture.take(kafka.bootstrap)))
        Filler(kafka.bootstrap, kafka.data, old, seed=3).more()
        kafka_added = picture.take(kafka.bootstrap)
    with Serving(ours):
        picture.assert_same(served(kafka_added), served(picture.take(ours.bootstrap)))


def served(seen: Picture) -> Picture:
    """Without what depends on the broker, not on the directory: looking for times in logs of format 0, which has none.
    Apache Kafka before 4.0 refuses that where a topic's setting says format 0, and takes the age of a segment's file
    for the time of its records, so that it finds nothing behind such a segment.
    """
    facts = {
        path: fact
        for path, fact in seen.facts.items()
        if not (path[0].startswith(("time", "max")) and path[1].startswith("format-0"))
    }
    return Picture(facts, seen.records)


def known_alone(seen: Picture) -> Picture:
    """Without settings: in ZooKeeper mode the directory does not hold them."""
    return served(seen).without("config")
