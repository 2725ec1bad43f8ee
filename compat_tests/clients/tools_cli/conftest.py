"""The tools bound to the broker under test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms


@pytest.fixture(scope="module")
def tools(bootstrap: str, warm_jvms: WarmJvms) -> Tools:
    """The tools."""
    return Tools(bootstrap, warm_jvms)


@pytest.fixture
def topic(tools: Tools, unique: Callable[..., str]) -> str:
    """A topic of two partitions."""
    name = unique()
    tools("kafka-topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "1")
    return name
