"""What kinds of brokers the cluster under test has: three of ours, or with `--peer kafka` three Apache Kafka 3.9.1."""

from __future__ import annotations

import pytest

from compat_tests.clusters.nodes import KAFKA, OURS


@pytest.fixture(scope="session")
def kinds(pytestconfig: pytest.Config) -> list[str]:
    """The kinds of the three brokers."""
    if pytestconfig.getoption("--bootstrap"):
        pytest.skip("these tests start and hurt clusters of their own")
    return [KAFKA if pytestconfig.getoption("--peer") == "kafka" else OURS] * 3
