"""Which clients there are, and a test's parameters for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import pytest

from compat_tests.subjects.security.clients.aio import Aiokafka
from compat_tests.subjects.security.clients.client import Client
from compat_tests.subjects.security.clients.confluent import Confluent
from compat_tests.subjects.security.clients.java import Java
from compat_tests.subjects.security.clients.kafka_python import KafkaPython
from compat_tests.subjects.security.clients.kcat import Kcat

LIBRARIES = ("kafka-python", "confluent-kafka", "aiokafka", "Java 4.3.1", "Java 3.9.1")
ALL = (*LIBRARIES, "kcat")


class Clients:
    """Made when they are first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Client] = {}
        self._at_end = ExitStack()

    def get(self, name: str) -> Client:
        """By its name. Raises ToolMissing."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Client:
        if name.startswith("Java "):
            java = Java(name.removeprefix("Java "))
            self._at_end.callback(java.stop)
            return java
        makers = {"kafka-python": KafkaPython, "confluent-kafka": Confluent, "aiokafka": Aiokafka, "kcat": Kcat}
        return makers[name]()

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._at_end.close()


def marks(name: str, area: str, title: str) -> Iterable[pytest.MarkDecorator]:
    """Of a test with this client."""
    yield pytest.mark.case(area, title, client=name)
    yield pytest.mark.slow
    if name.startswith("Java "):
        yield pytest.mark.jvm
    if name == "kcat":
        yield pytest.mark.kcat


def with_each(area: str, title: str, names: Sequence[str] = ALL) -> pytest.MarkDecorator:
    """The argument `client`: one test for each."""
    rows = [pytest.param(name, marks=list(marks(name, area, title)), id=name) for name in names]
    return pytest.mark.parametrize("client", rows, indirect=True)
