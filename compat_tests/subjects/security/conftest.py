"""The brokers of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from compat_tests.harness.jars import NO_JVM
from compat_tests.subjects.security import listeners
from compat_tests.subjects.security.guarded import Guarded
from compat_tests.subjects.security.guarded import start as start_guarded
from compat_tests.subjects.security.listeners import Secured


@pytest.fixture(scope="package")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Ours, or Apache Kafka with `--peer kafka`."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    peer = request.config.getoption("--peer") == "kafka"
    if peer:
        os.environ.pop(NO_JVM, None)  # whoever chooses this broker has a JVM, also for tests that start none
    started = listeners.start(tmp_path_factory.mktemp("security"), peer=peer)
    yield started
    started.broker.stop()


@pytest.fixture(scope="package")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Ours, or Apache Kafka with `--peer kafka`."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    peer = request.config.getoption("--peer") == "kafka"
    started = start_guarded(tmp_path_factory.mktemp("guarded"), peer=peer)
    yield started
    started.broker.stop()


@pytest.fixture
def topic(secured: Secured, unique: Callable[..., str]) -> str:
    name = unique()
    listeners.make_topic(secured.plaintext, name)
    return name
