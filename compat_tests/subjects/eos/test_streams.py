"""A stateful word count by Kafka Streams with exactly_once_v2, while it and the broker are killed and restarted: for a
reader with read_committed every word counts one, two, three and so on, without a gap or a double, up to the total.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.applications import Application
from compat_tests.subjects.eos.readers import Seen, Watcher, administrator, nothing_open, starts, whole

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(3600)]

LINES, COUNTS, NAME = "lines", "word-counts", "counter"
PARTITIONS = 2
REPARTITION, CHANGELOG = f"{NAME}-by-word-repartition", f"{NAME}-counts-changelog"
WORDS = [f"word{number}" for number in range(50)]
PER_TURN = 600
"""Lines of five words each in every turn."""
PATIENCE_S = 400
# A member that was killed is missed for so long: the broker's smallest, instead of 45 s. Of streams groups, the broker
# says so (`conftest.py`).
CLASSIC = ("session.timeout.ms=6000", "heartbeat.interval.ms=1500")
# What was counted is deleted from the repartition topic so often, instead of every 30 s.
# A transaction outlives a broker that is away for as long as a loaded machine takes to start Apache Kafka.
SETTINGS = (
    "repartition.purge.interval.ms=500",
    "producer.transaction.timeout.ms=60000",
)


@dataclass
class Work:
    """What was written, who counts, and who looks on."""

    broker: Restartable
    chance: random.Random
    applications: list[Application]
    watcher: Watcher
    expected: Counter[str] = field(default_factory=Counter)
    written: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    done: Counter[str] = field(default_factory=Counter)

    def write(self, lines: int) -> None:
        """Write so many lines in committed transactions, and nearly as many in aborted ones, which must not count."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "writer", "linger.ms": 5, "log_level": 0}
        )
        producer.init_transactions(120)
        for commit in (False, True):
            producer.begin_transaction()
            for _ in range(lines if commit else lines // 4):
                words = self.chance.choices(WORDS, k=5)
                partition = self.chance.randrange(PARTITIONS)
                producer.produce(LINES, " ".join(words), None, partition)
                producer.poll(0)
                if commit:
                    self.expected.update(words)
            if commit:
                producer.commit_transaction(120)
            else:
                assert producer.flush(120) == 0
                producer.abort_transaction(120)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for *done*; what went wrong meanwhile is raised."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}; {self.state()}"
            for application in self.applications:
                application.fail_if_wrong()
            time.sleep(0.02)

    def everything(self) -> bool:
        """Whether all that was written is counted."""
        return self.watcher.total() >= self.expected.total()

    def state(self) -> str:
        """How far it is, for a message."""
        return f"{self.watcher.total()} of {self.expected.total()} words are counted; {dict(self.done)}"

    def running(self) -> list[Application]:
        """The instances that run."""
        return [application for application in self.applications if application.running]


@contextmanager
def working(broker: Restartable, protocol: str, chance: random.Random, directory: Path) -> Iterator[Work]:
    """Topics, an application that runs, another that could, and a watcher that knows how one counts."""
    admin = administrator(broker.bootstrap)
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (LINES, COUNTS)]).values():
        made.result(60)
    arguments = (NAME, LINES, COUNTS)
    settings = (*SETTINGS, f"group.protocol={protocol}", *(CLASSIC if protocol == "classic" else ()))
    applications = [
        Application(broker.bootstrap, arguments, directory / f"state-{number}", settings) for number in range(2)
    ]
    last: Counter[bytes] = Counter()

    def check(partition: int, _: Sequence[Seen], record: Seen) -> None:
        assert record.key is not None, record
        assert record.value == b"%d" % (last[record.key] + 1), f"{record} in {partition} follows {last[record.key]}"
        last[record.key] += 1

    work = Work(broker, chance, applications, Watcher(broker.bootstrap, COUNTS, PARTITIONS, check))
    try:
        applications[0].start()
        yield work
    finally:
        work.watcher.stop()
        for application in applications:
            application.kill()


def turn(work: Work, action: str) -> None:
    """Write lines; when the first of them are counted, at a random moment, do what *action* says."""
    before = work.watcher.total()
    work.write(PER_TURN)
    work.until(lambda: work.watcher.total() > before, f"something is counted before the next {action}")
    time.sleep(work.chance.uniform(0, 0.3))
    current = work.running()[0]
    match action:
        case "kill the application":
            current.kill()
            current.start()
        case "kill the broker":
            work.broker.kill()
            time.sleep(work.chance.uniform(0, 0.5))
            work.broker.start()
        case "stop the application":
            current.stop()
            current.start()
        case "stop the broker":
            work.broker.stop()
            work.broker.start()
        case "lose the state" | "lose everything":
            # Killed without its state it comes back under other transactional ids: what it left open must time out.
            (current.stop if action == "lose the state" else current.kill)()
            current.lose_state()
            current.start()
            current.wait_until_ready()
            # What it knew is in the changelog, or the counts would begin with one again. In a streams group it runs
            # without tasks until those who were killed are missed.
            work.until(lambda: current.restored() > 0, "its state is read again")
        case "hand over":
            (other,) = (application for application in work.applications if not application.running)
            other.start()
            other.wait_until_ready()
            current.stop()
    work.done[action] += 1


ACTIONS = (
    *("kill the application", "kill the broker", "hand over", "lose the state"),
    *("stop the application", "stop the broker", "lose everything"),
)


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(
            "classic",
            marks=pytest.mark.case(
                "exactly once", "Kafka Streams: a word count, killed, and the broker", client="streams"
            ),
        ),
        pytest.param(
            "streams",
            marks=pytest.mark.case(
                "exactly once",
                "Kafka Streams in a streams group: a word count, killed, and the broker",
                client="streams",
            ),
        ),
    ],
)
def test_word_count(
    protocol: str, restartable: Restartable, chance: random.Random, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    rounds = pytestconfig.getoption("--rounds")
    actions = [*ACTIONS, *(chance.choice(ACTIONS) for _ in range(rounds))][: rounds or 4]
    with working(restartable, protocol, chance, tmp_path) as work:
        for action in actions:
            turn(work, action)
        work.until(work.everything, "all is counted")
        bootstrap = restartable.bootstrap
        for topic in (COUNTS, REPARTITION, CHANGELOG):
            work.until(lambda topic=topic: nothing_open(bootstrap, topic, PARTITIONS), f"nothing is open in {topic}")
        (current,) = work.running()
        current.stop()
        work.watcher.stop()
        print(work.state())

        assert work.watcher.total() == work.expected.total()
        seen = whole(bootstrap, COUNTS, PARTITIONS)
        assert seen == work.watcher.seen
        totals = {record.key: int(record.value or b"") for records in seen for record in records}
        assert {word.encode(): count for word, count in work.expected.items()} == totals
        changelog = {
            record.key: int.from_bytes(record.value or b"", "big")
            for records in whole(bootstrap, CHANGELOG, PARTITIONS)
            for record in records
        }
        assert changelog == totals
        assert min(starts(bootstrap, REPARTITION, PARTITIONS)) > 0, "nothing was deleted from the repartition topic"
