"""The stored table is what Apache Kafka answers, 4.3.1 and 3.9.1, and what our broker answers but for what is declared:
all cells, with brokers as processes.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.subjects.access.brokers import apache_kafka, apache_kafka_3, barnabas
from compat_tests.subjects.access.differences import expected_of_ours
from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD, OPEN_WORLD, Table, stored
from compat_tests.subjects.access.trial import earlier, everything
from compat_tests.subjects.access.world import Address, World

TIMEOUT_S = 2400
WORLDS = [CLOSED_WORLD, OPEN_WORLD]


def asked(started: tuple[Broker, Address], which: str) -> Table:
    """What a broker answers; it is ended."""
    broker, address = started
    try:
        with closing(World(address)) as world:
            return dict(everything(world, which))
    finally:
        broker.stop()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.campaign
@pytest.mark.jvm
@pytest.mark.parametrize("which", WORLDS)
def test_apache_kafka_answers_what_is_stored(tmp_path: Path, which: str) -> None:
    found = asked(apache_kafka(tmp_path, is_open=which == OPEN_WORLD), which)
    _is_stored(found, which)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.campaign
@pytest.mark.jvm
def test_apache_kafka_3_answers_what_is_stored(tmp_path: Path) -> None:
    with apache_kafka_3(tmp_path) as address, closing(World(address)) as world:
        found = dict(earlier(world, stored()[CLOSED_WORLD]))
    _is_stored(found, EARLIER_WORLD)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.campaign
@pytest.mark.parametrize("which", WORLDS)
def test_our_broker_answers_the_same(tmp_path: Path, which: str) -> None:
    found = asked(barnabas(tmp_path, is_open=which == OPEN_WORLD), which)
    wrong = [
        f"{probe} v{version}, {title}: {outcomes[title][version]} and not {expected}"
        for probe, outcomes in found.items()
        for title, by_version in stored()[which][probe].items()
        for version, text in by_version.items()
        if version in outcomes[title]
        and outcomes[title][version] != (expected := expected_of_ours(which, probe, title, text))
    ]
    assert wrong[:20] == []


def _is_stored(found: Table, which: str) -> None:
    """Scenario by scenario, so that the difference can be read."""
    table = stored()[which]
    assert list(found) == list(table)
    wrong = [
        f"{probe}, {title}: {outcomes.get(title)} and not {by_version}"
        for probe, outcomes in found.items()
        for title, by_version in table[probe].items()
        if outcomes.get(title) != by_version
    ]
    assert wrong[:20] == []
    assert found == table
