"""The shared cases with confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.cases import Case
from compat_tests.cases.all_cases import absent, parameters
from compat_tests.clients.confluent.adapter import ConfluentClient

ABSENT = absent(ConfluentClient)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[ConfluentClient]:
    """The library under test."""
    made = ConfluentClient(bootstrap)
    yield made
    made.close()


@pytest.mark.parametrize("one", parameters(ConfluentClient))
def test_case(one: Case, client: ConfluentClient, unique: Callable[..., str]) -> None:
    one.run(client, unique)
