"""An application of Kafka Streams whose topology changes, in a streams group; and one that is shut down as a whole.

Apache Kafka 4.3.1 changes no topology of a group that has one: a member that joins with another is refused with
INVALID_REQUEST, and its client gives up. So a rolling restart with a changed topology ends at its first instance, and
the instances that are left, with the old one, go on. A group that all have left keeps its topology, and refuses another
as before. Who deletes the group can have another one. It begins at the
start of its topics; so the internal ones must go, too, or what is left of them counts once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.clients.tools_cli.test_topics import CLIENT
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.checks import wait_until
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.applications import Application, written
from compat_tests.subjects.eos.readers import administrator

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

LINES, COUNTS, LENGTHS, NAME = "lines", "word-counts", "length-counts", "counter"
PROTOCOL = "group.protocol=streams"
GROWN = f"lengths.topic={LENGTHS}"
INTERNAL = {f"{NAME}-by-word-repartition", f"{NAME}-counts-changelog"}
REFUSED = "InvalidRequestException"


def case(title: str) -> pytest.MarkDecorator:
    """The place of a case of an application in a streams group."""
    return pytest.mark.case("exactly once", f"Kafka Streams in a streams group: {title}", CLIENT)


class Instances:
    """Instances of the application, each with a state directory of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self.made: list[Application] = []

    def started(self, *settings: str) -> Application:
        """One more, which was started."""
        state = self._directory / f"state-{len(self.made)}"
        one = Application(self._bootstrap, (NAME, LINES, COUNTS), state, [PROTOCOL, *settings])
        self.made.append(one)
        one.start()
        return one


@contextmanager
def instances(bootstrap: str, directory: Path) -> Iterator[Instances]:
    """A maker of instances, which are ended; the topics are there."""
    admin = administrator(bootstrap)
    for each in admin.create_topics([NewTopic(name, 2, 1) for name in (LINES, COUNTS, LENGTHS)]).values():
        each.result(60)
    some = Instances(bootstrap, directory)
    try:
        yield some
    finally:
        for one in some.made:
            one.kill()


def produced(bootstrap: str, *lines: str) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for line in lines:
        producer.produce(LINES, line)
    assert producer.flush(60) == 0


def counts(tools: Tools, topic: str, expected: Sequence[str]) -> None:
    """All that an application has ever said."""
    assert written(tools, topic, len(expected)) == list(expected)


@case("a rolling restart with another topology is refused, who has the old one goes on")
def test_rolling_restart(restartable: Restartable, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    tools = Tools(restartable.bootstrap, warm_jvms)
    with instances(restartable.bootstrap, tmp_path) as application:
        first, second = application.started(), application.started()
        first.wait_until_ready()
        second.wait_until_ready()
        produced(restartable.bootstrap, "a b c", "a b")
        counts(tools, COUNTS, ["1", "1", "1", "2", "2"])
        second.stop()
        application.started(GROWN).wait_until_failed(REFUSED)
        produced(restartable.bootstrap, "a")
        counts(tools, COUNTS, ["1", "1", "1", "2", "2", "3"])
        again = application.started()
        again.wait_until_ready()
        first.stop()
        produced(restartable.bootstrap, "a c")
        counts(tools, COUNTS, ["1", "1", "1", "2", "2", "2", "3", "4"])
        again.stop()


@case("a group that all have left keeps its topology; deleted, it takes another")
def test_after_all_have_left(restartable: Restartable, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    tools = Tools(restartable.bootstrap, warm_jvms)
    with instances(restartable.bootstrap, tmp_path) as application:
        first = application.started()
        first.wait_until_ready()
        produced(restartable.bootstrap, "a b")
        counts(tools, COUNTS, ["1", "1"])
        first.stop()
        application.started(GROWN).wait_until_failed(REFUSED)
        tools("kafka-streams-groups", "--delete", "--group", NAME, "--delete-all-internal-topics")
        admin = administrator(restartable.bootstrap)
        wait_until(lambda: not INTERNAL & admin.list_topics(timeout=60).topics.keys(), "its topics' end", 120)
        grown = application.started(GROWN)
        grown.wait_until_ready()
        counts(tools, LENGTHS, ["1", "2"])
        counts(tools, COUNTS, ["1"] * 4)
        produced(restartable.bootstrap, "c dd")
        counts(tools, LENGTHS, ["1", "1", "2", "3"])
        counts(tools, COUNTS, ["1"] * 6)
        grown.stop()
        application.started().wait_until_failed(REFUSED)


@case("SHUTDOWN_APPLICATION: one instance fails, all end")
def test_shutdown_of_the_application(restartable: Restartable, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    tools = Tools(restartable.bootstrap, warm_jvms)
    with instances(restartable.bootstrap, tmp_path) as application:
        both = [application.started("on.failure=SHUTDOWN_APPLICATION") for _ in range(2)]
        for one in both:
            one.wait_until_ready()
        produced(restartable.bootstrap, "a")
        counts(tools, COUNTS, ["1"])
        produced(restartable.bootstrap, "poison")
        for one in both:
            one.wait_until_ended()
        again = application.started()
        again.wait_until_ready()
        counts(tools, COUNTS, ["1", "1"])
        again.stop()
