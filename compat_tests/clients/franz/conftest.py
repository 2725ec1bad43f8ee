"""A broker for groups that move fast, the program, and makers of its clients that close what they made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.clients.franz.program import franz
from compat_tests.harness.members import Members
from compat_tests.harness.restartable import Restartable, start_restartable
from compat_tests.subjects.modern_groups.conftest import SETTINGS

Make = Callable[..., Any]
# A session lasts as long as it does by default: who stands still for some seconds would read records again.
OWN_SETTINGS = tuple(one for one in SETTINGS if not one.startswith("group.consumer.session.timeout.ms="))


@pytest.fixture(scope="package")
def restartable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    """The broker of this folder."""
    started = start_restartable(request.config, tmp_path_factory.mktemp("franz"), OWN_SETTINGS)
    yield started
    started.stop()


@pytest.fixture(scope="package")
def client(restartable: Restartable) -> Iterator[ConfluentClient]:
    """For topics, and what the program did as others see it."""
    made = ConfluentClient(restartable.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="package")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """The program."""
    started = franz(tmp_path_factory.mktemp("franz-program") / "stderr.log")
    yield started
    started.stop()


@pytest.fixture
def make(restartable: Restartable, members: Members) -> Iterator[Make]:
    """`make(Kind, **settings)`."""
    made = []

    def one(kind: Callable[..., Any], **settings: str) -> Any:
        made.append(kind(members, bootstrap_servers=restartable.bootstrap, **settings))
        return made[-1]

    yield one
    for each in made:
        each.close()
