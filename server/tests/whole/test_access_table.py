"""Who is answered what: our broker against what Apache Kafka 4.3.1 answered, request by request.

`compat_tests/subjects/access` says how the cells are made. Here are those at which an answer is another than in the
version before or behind it; `compat_tests/subjects/access/test_table.py` has all, with processes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from barnabas.kproto import ApiKey
from barnabas.server.apis import APIS
from barnabas.server.testing import broker_thread, cluster_thread
from compat_tests.harness.ports import free_ports
from compat_tests.subjects.access.brokers import OPEN, SETTINGS
from compat_tests.subjects.access.differences import DIFFERENCES, expected_of_ours
from compat_tests.subjects.access.page import PAGE, page
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes import PROBES
from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD, OPEN_WORLD, stored
from compat_tests.subjects.access.trial import ALL, SCENARIOS, boundaries
from compat_tests.subjects.access.world import Address, World

TABLES = stored()


@contextmanager
def world(settings: dict[str, str], run: Callable[..., AbstractContextManager[str]] = broker_thread) -> Iterator[World]:
    plain, login = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}"
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # these topics are many
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-tests-", dir=memory) as directory,
        run(directory, **{**SETTINGS, **settings, "listeners": listeners}),
    ):
        made = World(Address(("127.0.0.1", plain), ("127.0.0.1", login)))
        yield made
        made.close()


@pytest.fixture(scope="module")
def closed() -> Iterator[World]:
    with world({}) as made:
        yield made


@pytest.fixture(scope="module")
def clustered() -> Iterator[World]:
    with world({}, cluster_thread) as made:
        yield made


@pytest.fixture(scope="module")
def opened() -> Iterator[World]:
    with world(OPEN) as made:
        yield made


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_every_principal_is_answered_as_by_apache_kafka(closed: World, probe: Probe) -> None:
    compare(closed, probe, CLOSED_WORLD)


@pytest.mark.parametrize("name", TABLES[EARLIER_WORLD])
def test_what_only_apache_kafka_3_serves(clustered: World, name: str) -> None:
    """Old versions, and what brokers of a cluster ask."""
    compare(clustered, next(probe for probe in ALL if probe.name == name), EARLIER_WORLD)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_and_where_no_acl_is_no_denial(opened: World, probe: Probe) -> None:
    compare(opened, probe, OPEN_WORLD)


def compare(world: World, probe: Probe, which: str) -> None:
    theirs = TABLES[which][probe.name]
    found = boundaries(world, which, probe, theirs)
    wrong = [
        f"v{version}, {title}:\n  ours   {outcome}\n  theirs {theirs[title][version]}"
        for title, by_version in found.items()
        for version, outcome in by_version.items()
        if outcome != expected_of_ours(which, probe.name, title, theirs[title][version])
    ]
    assert not wrong, "\n".join(wrong[:10])
    assert any(found.values())


def test_every_version_is_probed() -> None:
    # Without a plug-in for clients' metrics Apache Kafka offers no telemetry, and these brokers have no metrics either.
    apis = [api for api in APIS if api.is_served(clustered=True, telemetry=False)]
    asked: dict[ApiKey, set[int]] = {api.key: set() for api in apis}
    for probe in ALL:
        for which in (CLOSED_WORLD, EARLIER_WORLD):
            asked[probe.api].update(TABLES[which].get(probe.name, {}).get("nothing", {}))
    missing = {api.key: set(range(api.versions[0], api.versions[1] + 1)) - asked[api.key] for api in apis}
    assert {key.name: versions for key, versions in missing.items() if versions} == {}


def test_the_table_is_whole() -> None:
    """Nothing of it is left from probes and scenarios that were."""
    for which, made in SCENARIOS.items():
        if which != EARLIER_WORLD:
            assert list(TABLES[which]) == [probe.name for probe in PROBES]
        for probe in ALL:
            if probe.name in TABLES[which]:
                assert set(TABLES[which][probe.name]) == {one.title for one in made(probe)}, probe.name


def test_every_difference_is_one() -> None:
    for one in DIFFERENCES:
        assert one.theirs != one.ours
        assert any(
            one.theirs in text
            for title, by_version in TABLES[one.world][one.probe].items()
            for text in by_version.values()
            if one.concerns(one.world, one.probe, title)
        ), one


def test_the_page_is_made_of_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(TABLES)
