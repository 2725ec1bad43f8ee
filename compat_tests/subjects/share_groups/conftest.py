"""A broker for share groups that move fast, a JVM with members, and a maker of members that closes what it made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients.confluent.adapter import ConfluentClient
from compat_tests.clients.franz.program import franz
from compat_tests.harness.members import Members
from compat_tests.harness.members_jvm import MembersJvm
from compat_tests.harness.restartable import Restartable, start_restartable
from compat_tests.subjects.share_groups.groups import SETTINGS, configure
from compat_tests.subjects.share_groups.members import (
    FRANZ,
    JAVA,
    SOURCE,
    FranzShareMember,
    JavaShareMember,
    RdkafkaShareMember,
    ShareMember,
)

Make = Callable[..., Any]


@pytest.fixture(scope="package")
def restartable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    """The broker of this folder."""
    started = start_restartable(request.config, tmp_path_factory.mktemp("share"), SETTINGS)
    yield started
    started.stop()


@pytest.fixture(scope="package")
def client(restartable: Restartable) -> Iterator[ConfluentClient]:
    """For topics and records."""
    made = ConfluentClient(restartable.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="package")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MembersJvm]:
    """Where Java's members are."""
    started = MembersJvm(SOURCE, "4.3.1", tmp_path_factory.mktemp("share-members") / "stderr.log")
    yield started
    started.stop()


@pytest.fixture(scope="package")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Where franz-go's members are."""
    started = franz(tmp_path_factory.mktemp("share-franz") / "stderr.log")
    yield started
    started.stop()


@pytest.fixture
def make(restartable: Restartable, request: pytest.FixtureRequest) -> Iterator[Make]:
    """`make(kind, group, *topics, explicit=False, **settings)`."""
    made: list[ShareMember] = []

    def one(kind: str, group: str, *topics: str, explicit: bool = False, **settings: str) -> ShareMember:
        config: dict[str, str] = {
            "bootstrap.servers": restartable.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit" if explicit else "implicit",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        member: ShareMember
        if kind == JAVA:
            member = JavaShareMember(request.getfixturevalue("jvm"), config, topics)
        elif kind == FRANZ:
            member = FranzShareMember(request.getfixturevalue("program"), config, topics)
        else:
            member = RdkafkaShareMember(config, topics)
        made.append(member)
        return member

    yield one
    for member in made:
        member.close()


@pytest.fixture
def share_group(restartable: Restartable, unique: Callable[..., str]) -> Callable[..., str]:
    """A new group with settings of its own, which begins at the start of logs."""

    def one(**settings: str) -> str:
        group = unique("group")
        configure(restartable.bootstrap, group, **settings)
        return group

    return one
