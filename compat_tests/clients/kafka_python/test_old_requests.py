"""The shared cases with the requests of 2018: a client library that has not been updated for years."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.cases import Case
from compat_tests.cases.all_cases import absent, parameters
from compat_tests.clients.kafka_python.adapter import OldPythonClient

ABSENT = absent(OldPythonClient)
# Of the transactions only some: their old requests differ little from what librdkafka and aiokafka still send.
TRANSACTIONS = ("commit", "abort", "a second producer")
CASES = [
    parameter
    for parameter in parameters(OldPythonClient)
    if not parameter.values[0].area.startswith("transactions") or parameter.values[0].title.startswith(TRANSACTIONS)
]


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[OldPythonClient]:
    """The library under test."""
    made = OldPythonClient(bootstrap)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("one", CASES)
def test_case(one: Case, client: OldPythonClient, unique: Callable[..., str]) -> None:
    one.run(client, unique)
