"""The shared cases with aiokafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat_tests.cases import Case
from compat_tests.cases.all_cases import absent, parameters
from compat_tests.clients.aio.adapter import AioClient

ABSENT = absent(AioClient)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[AioClient]:
    """The library under test."""
    made = AioClient(bootstrap)
    yield made
    made.close()


@pytest.mark.parametrize("one", parameters(AioClient))
def test_case(one: Case, client: AioClient, unique: Callable[..., str]) -> None:
    one.run(client, unique)
