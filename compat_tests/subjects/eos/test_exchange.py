"""A streams group in a log directory that goes from Apache Kafka 4.3.1 to our broker and back: the application goes on
counting where it has stopped, out of its changelog, and reads nothing twice.
"""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.clusters.nodes import Node
from compat_tests.harness import dump_log
from compat_tests.subjects.eos.applications import Application, written
from compat_tests.subjects.eos.conftest import SETTINGS
from compat_tests.subjects.eos.readers import administrator
from compat_tests.subjects.exchange import places
from compat_tests.subjects.exchange.places import Serving

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

LINES, COUNTS, NAME = "lines", "word-counts", "counter"
STREAMED = dict(setting.split("=") for setting in SETTINGS) | {"offsets.topic.num.partitions": "2"}


def counted(node: Node, warm_jvms: WarmJvms, state: Path, lines: list[str], counts: list[str]) -> None:
    """The application counts these lines; then all that it has ever said is this."""
    tools = Tools(node.bootstrap, warm_jvms)
    application = Application(node.bootstrap, (NAME, LINES, COUNTS), state, ["group.protocol=streams"])
    application.start()
    try:
        application.wait_until_ready()
        # Not idempotent: who had the directory meanwhile may have given out the producer ids that come next here.
        producer = ck.Producer({"bootstrap.servers": node.bootstrap})
        for line in lines:
            producer.produce(LINES, line)
        assert producer.flush(60) == 0
        assert written(tools, COUNTS, len(counts)) == counts
    finally:
        application.stop()


def test_there_and_back(warm_jvms: WarmJvms, tmp_path: Path) -> None:
    kafka = places.kraft(tmp_path / "kafka", **STREAMED)
    with Serving(kafka):
        admin = administrator(kafka.bootstrap)
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in (LINES, COUNTS)]).values():
            made.result(60)
        counted(kafka, warm_jvms, tmp_path / "first", ["a b c", "a b", "a"], ["1", "1", "1", "2", "2", "3"])
    back = places.copy(kafka.data, tmp_path / "back")

    ours = places.ours_alone(kafka.directory, **STREAMED)
    with Serving(ours):
        counted(ours, warm_jvms, tmp_path / "second", ["a c"], ["1", "1", "1", "2", "2", "2", "3", "4"])
    assert dump_log.complaints([ours.data]) == []

    again = places.kraft(back, **STREAMED)
    places.take_over(ours.data, again.data, places.ids_of(ours.data))
    with Serving(again):
        counted(again, warm_jvms, tmp_path / "third", ["a"], ["1", "1", "1", "2", "2", "2", "3", "4", "5"])
