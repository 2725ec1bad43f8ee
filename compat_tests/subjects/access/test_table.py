"""The stored table is what Apache Kafka 4.3.1 answers, and what our broker answers but for what is declared: all cells,
with brokers as processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.subjects.access.brokers import apache_kafka, barnabas
from compat_tests.subjects.access.differences import expected_of_ours
from compat_tests.subjects.access.runner import Outcomes
from compat_tests.subjects.access.table import CLOSED_WORLD, OPEN_WORLD, Table, stored
from compat_tests.subjects.access.trial import everything
from compat_tests.subjects.access.world import Address, World

WORLDS = [CLOSED_WORLD, OPEN_WORLD]


def asked(started: tuple[Broker, Address], which: str) -> Table:
    """What a broker answers; it is ended."""
    broker, address = started
    try:
        world = World(address)
        try:
            return dict(everything(world, which))
        finally:
            world.close()
    finally:
        broker.stop()


@pytest.mark.campaign
@pytest.mark.jvm
@pytest.mark.parametrize("which", WORLDS)
def test_apache_kafka_answers_what_is_stored(tmp_path: Path, which: str) -> None:
    found = asked(apache_kafka(tmp_path, is_open=which == OPEN_WORLD), which)
    assert _wrong(found, stored()[which], lambda probe, text: text) == []
    assert {name: _cells(each) for name, each in found.items()} == {
        name: _cells(each) for name, each in stored()[which].items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("which", WORLDS)
def test_our_broker_answers_the_same(tmp_path: Path, which: str) -> None:
    found = asked(barnabas(tmp_path, is_open=which == OPEN_WORLD), which)
    assert _wrong(found, stored()[which], expected_of_ours) == []


def _cells(outcomes: Outcomes) -> dict[str, list[int]]:
    return {title: sorted(by_version) for title, by_version in outcomes.items()}


def _wrong(found: Table, table: Table, expected: Callable[[str, str], str]) -> list[str]:
    """The first of the cells that the table has, and that are not as expected of it."""
    wrong = [
        f"{probe} v{version}, {title}: {outcomes[title][version]} and not {expected(probe, text)}"
        for probe, outcomes in found.items()
        for title, by_version in table[probe].items()
        for version, text in by_version.items()
        if version in outcomes[title] and outcomes[title][version] != expected(probe, text)
    ]
    return wrong[:20]
