"""A directory that our broker filled is started by Apache Kafka, which shows the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.clusters.nodes import KafkaNode, OurNode
from compat_tests.harness import dump_log
from compat_tests.harness.zookeeper import zookeeper
from compat_tests.subjects.exchange import picture, places
from compat_tests.subjects.exchange.filler import SMALL_INDEXES, Abilities, Filler
from compat_tests.subjects.exchange.picture import OFFSETS
from compat_tests.subjects.exchange.places import Serving

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]


def test_zookeeper(tmp_path: Path) -> None:
    """3.9.1 on our directory and our tree; then on the directory as a kill of ours leaves it."""
    with zookeeper(tmp_path / "zookeeper") as tree:
        ours = places.with_zookeeper(OurNode, tmp_path / "ours", tree.connect, {})
        with Serving(ours):
            filler = Filler(ours.bootstrap, ours.data, Abilities())
            filler.fill()
            filled = picture.take(ours.bootstrap)
            killed = places.copy_as_killed(ours, tmp_path / "killed")
        places.check_filling(filled)
        places.check_transactions(filled)
        complaints = dump_log.complaints([killed / "data", ours.data])

        kafka = places.with_zookeeper(KafkaNode, tmp_path / "ours", tree.connect, {})
        with Serving(kafka):
            picture.assert_same(kafka=picture.take(kafka.bootstrap), ours=filled)
        recovering = places.with_zookeeper(KafkaNode, killed, tree.connect, {})
        with Serving(recovering):
            picture.assert_same(kafka=picture.take(recovering.bootstrap), ours=filled)
            Filler(recovering.bootstrap, recovering.data, Abilities(), seed=2).more()
    assert complaints == []


def test_kraft(tmp_path: Path) -> None:
    """4.3.1: topics of the same names are made there, then our partitions take their places, under their ids."""
    ours = places.ours_alone(tmp_path / "ours")
    with Serving(ours):
        filler = Filler(ours.bootstrap, ours.data, Abilities(small=SMALL_INDEXES))
        filler.fill()
        filled = picture.take(ours.bootstrap)
    places.check_filling(filled)
    places.check_transactions(filled)
    kafka = places.kraft(tmp_path / "kafka")
    with Serving(kafka):
        ids = places.make_topics_like(filled, kafka)
    places.take_over(ours.data, kafka.data, ids)
    with Serving(kafka):
        found = picture.take(kafka.bootstrap)
    # A group that only ever stored offsets leaves no record of its own, neither with 3.9 nor with ours, so its end is
    # not in the log either: 4.x shows such a group, empty, until its next look for expired offsets.
    assert found.facts.pop(("group", "deleted", "offsets"), []) == []
    found.facts.pop(("group", "deleted", "state"), None)
    # The internal topic keeps the settings that its new broker gives it.
    kept = filled.without("topic id")
    kept.facts["config", OFFSETS] = found.facts["config", OFFSETS]
    picture.assert_same(kafka=found.without("topic id"), ours=kept)
