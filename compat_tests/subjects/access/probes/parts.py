"""What the requests of many probes are made of. A list of topics holds three: `mine`, `other`, and one that is not
there; a field that a version does not have is left out when the request is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.subjects.access.acls import Kind, Need, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names

Of = Callable[[Names], Values]


def topic(operation: Op) -> Need:
    return Need(operation, Kind.TOPIC)


def group(operation: Op) -> Need:
    return Need(operation, Kind.GROUP)


def cluster(operation: Op) -> Need:
    return Need(operation, Kind.CLUSTER)


def transaction(operation: Op) -> Need:
    return Need(operation, Kind.TRANSACTIONAL_ID)


def token(operation: Op) -> Need:
    return Need(operation, Kind.DELEGATION_TOKEN)


def user(operation: Op) -> Need:
    return Need(operation, Kind.USER)


def always(**values: Any) -> Of:
    return lambda names: values


def three(names: Names, name: str = "name", **values: Any) -> list[Values]:
    """Of each topic the same, by name and, where the version has that, by id."""
    return [
        {name: names.topic, "topic_id": names.topic_id, **values},
        {name: names.other_topic, "topic_id": names.other_id, **values},
        {name: names.no_topic, "topic_id": names.no_id, **values},
    ]


def three_names(names: Names, name: str = "name", **values: Any) -> list[Values]:
    """By name only."""
    return [{name: each, **values} for each in (names.topic, names.other_topic, names.no_topic)]
