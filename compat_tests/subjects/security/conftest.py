"""The brokers of this folder, and the clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness import secured as brokers
from compat_tests.harness.jars import NO_JVM
from compat_tests.harness.secured import Secured
from compat_tests.subjects.security.guarded import Guarded
from compat_tests.subjects.security.guarded import start as start_guarded

if TYPE_CHECKING:
    from compat_tests.subjects.security.clients.choice import Clients
    from compat_tests.subjects.security.clients.client import Client


@pytest.fixture(scope="package")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Ours, or Apache Kafka with `--peer kafka`."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    peer = request.config.getoption("--peer") == "kafka"
    if peer:
        os.environ.pop(NO_JVM, None)  # whoever chooses this broker has a JVM, also for tests that start none
    started = brokers.start(tmp_path_factory.mktemp("security"), peer=peer)
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


@pytest.fixture(scope="package")
def clients() -> Iterator[Clients]:
    """By name. What they share, as a JVM, ends with the folder's tests."""
    from compat_tests.subjects.security.clients.choice import Clients

    with Clients() as made:
        yield made


@pytest.fixture
def client(clients: Clients, request: pytest.FixtureRequest) -> Client:
    """The one that the test's parameter names."""
    return clients.get(request.param)


@pytest.fixture
def topic(secured: Secured, unique: Callable[..., str]) -> str:
    """For everybody."""
    name = unique()
    secured.make_topic(name)
    return name
