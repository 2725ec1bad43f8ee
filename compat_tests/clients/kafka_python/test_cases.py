"""The shared cases with kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.cases import Case
from compat_tests.cases.all_cases import absent, parameters
from compat_tests.clients.kafka_python.adapter import PythonClient

ABSENT = absent(PythonClient)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[PythonClient]:
    """The library under test."""
    made = PythonClient(bootstrap)
    yield made
    made.close()


@pytest.mark.parametrize("one", parameters(PythonClient))
def test_case(one: Case, client: PythonClient, unique: Callable[..., str]) -> None:
    one.run(client, unique)
