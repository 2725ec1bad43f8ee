"""One Spark session for all tests of this folder (starting one takes longer than most of them), topics for each.

The clients are imported by the fixtures: pytest loads this file before it lets the warnings of their import through.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compat_tests.clients.spark.queries import Store
    from compat_tests.clients.spark.topics import Topics


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with the Kafka connector."""
    from compat_tests.clients.spark.session import new_session

    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def topics(bootstrap: str) -> Iterator[Topics]:
    """The broker, by way of other clients."""
    from compat_tests.clients.spark.topics import Topics

    made = Topics(bootstrap)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A place for the output and the checkpoint of one streaming query."""
    from compat_tests.clients.spark.queries import Store

    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def no_query_left(spark: SparkSession) -> Iterator[None]:
    """Stop the streaming queries a failed test leaves behind, or they disturb the next."""
    yield
    for query in spark.streams.active:
        query.stop()
