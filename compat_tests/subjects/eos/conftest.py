"""A broker to kill, and the random generator of the kills."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.harness.restartable import Restartable, start_restartable

SETTINGS = [
    "group.initial.rebalance.delay.ms=0",
    "group.streams.initial.rebalance.delay.ms=0",
    "group.streams.min.session.timeout.ms=6000",
    "group.streams.session.timeout.ms=6000",
    "group.streams.min.heartbeat.interval.ms=1500",
    "group.streams.heartbeat.interval.ms=1500",
]


@pytest.fixture
def settings() -> list[str]:
    """Of the broker; a module may have others."""
    return SETTINGS


@pytest.fixture
def restartable(pytestconfig: pytest.Config, tmp_path: Path, settings: list[str]) -> Iterator[Restartable]:
    """A broker of this test's own, running; it makes groups without delay, as everywhere in this suite."""
    made = start_restartable(pytestconfig, tmp_path / "broker", settings)
    yield made
    made.stop()


@pytest.fixture
def chance(pytestconfig: pytest.Config) -> random.Random:
    """The generator that decides whom to kill, and when. Its seed is printed."""
    seed = pytestconfig.getoption("--fault-seed")
    if seed is None:
        seed = random.randrange(1 << 31)
    print(f"--fault-seed {seed}")
    return random.Random(seed)
