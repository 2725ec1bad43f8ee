"""A directory that Apache Kafka filled is opened by our broker, which shows the same; and it goes back again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.clusters.nodes import KafkaNode, OurNode
from compat_tests.harness.zookeeper import ZooKeeper, zookeeper
from compat_tests.subjects.exchange import picture, places
from compat_tests.subjects.exchange.filler import SMALL_INDEXES, Abilities, Filler, formats
from compat_tests.subjects.exchange.picture import Picture
from compat_tests.subjects.exchange.places import Serving

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

# The oldest protocol between brokers with which 3.9.1 still writes message formats 0 and 1.
OLD_PROTOCOL = {"inter.broker.protocol.version": "2.8"}


def seen_alone(directory: Path) -> Picture:
    """What our broker without ZooKeeper shows of `directory`/data."""
    with Serving(places.ours_alone(directory)) as ours:
        return picture.take(ours.bootstrap)


def test_kraft(tmp_path: Path) -> None:
    """4.3.1: topics and their settings are known from its metadata log."""
    with Serving(places.kraft(tmp_path / "kafka")) as kafka:
        filler = Filler(kafka.bootstrap, kafka.data, Abilities(small=SMALL_INDEXES, new_groups=True))
        filler.fill()
        filled = picture.take(kafka.bootstrap)
        killed = places.copy_as_killed(kafka, tmp_path / "killed")
    places.check_filling(filled)
    places.check_transactions(filled)
    # Members of KIP-848 groups are not known here; their offsets are.
    del filled.facts["group", "new", "state"]
    for directory in (killed, kafka.directory):
        places.verify(directory)
        ours = places.ours_alone(directory)
        with Serving(ours):
            found = picture.take(ours.bootstrap)
            del found.facts["group", "new", "state"]
            picture.assert_same(kafka=filled, ours=found)
            Filler(ours.bootstrap, ours.data, Abilities(small=SMALL_INDEXES), seed=2).more()
            added = picture.take(ours.bootstrap)
        with Serving(ours):
            again = picture.take(ours.bootstrap)
        assert picture.differences(added, again) == []


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
    places.check_filling(filled)
    places.check_transactions(filled)
    assert {0} == formats(kafka.data, "format-0")
    assert {1} == formats(kafka.data, "format-1") == formats(kafka.data, "compacted-format-1")
    assert {0, 2} == formats(kafka.data, "format-0-then-2")
    assert {1, 2} == formats(kafka.data, "format-1-then-2")
    clean = places.copy(kafka.data, tmp_path / "clean")

    for directory in (killed, clean):
        places.verify(directory)
        # In ZooKeeper mode the directory does not hold the settings.
        picture.assert_same(kafka=filled.without("config"), ours=seen_alone(directory).without("config"))

    with Serving(ours):
        picture.assert_same(kafka=filled, ours=picture.take(ours.bootstrap))
        Filler(ours.bootstrap, ours.data, old, seed=2).more()
        ours_added = picture.take(ours.bootstrap)
    with Serving(kafka):
        picture.assert_same(kafka=picture.take(kafka.bootstrap), ours=ours_added)
        Filler(kafka.bootstrap, kafka.data, old, seed=3).more()
        kafka_added = picture.take(kafka.bootstrap)
    with Serving(ours):
        picture.assert_same(kafka=kafka_added, ours=picture.take(ours.bootstrap))
