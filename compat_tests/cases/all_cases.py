"""Every shared case, and the pytest parameters made of them for one client library."""

from __future__ import annotations

import re
from typing import Any

import pytest

from compat_tests.cases import (
    Case,
    admin,
    cases_of,
    consume,
    groups,
    groups_admin,
    produce,
    transactions,
    transactions_offsets,
)
from compat_tests.harness.client import Client
from compat_tests.harness.matrix import Absent, Place

MODULES = (produce, consume, groups, groups_admin, admin, transactions, transactions_offsets)
CASES: tuple[Case, ...] = tuple(one for module in MODULES for one in cases_of(module))


def parameters(client: type[Client]) -> list[Any]:
    """Return the cases this library can run, marked with their places."""
    found = []
    for one in CASES:
        if one.reason_absent(client) is None:
            # Each wants a broker's process.
            marks = [pytest.mark.slow, pytest.mark.case(one.area, one.title, client.name)]
            identity = re.sub("[^a-z0-9]+", "-", f"{one.area} {one.title}".lower()).strip("-")
            found.append(pytest.param(one, id=identity, marks=marks))
    return found


def absent(client: type[Client]) -> list[Absent]:
    """Return the cases this library cannot run, with the reasons."""
    reasons = [(one, one.reason_absent(client)) for one in CASES]
    return [Absent(Place(one.area, one.title, client.name), reason) for one, reason in reasons if reason is not None]
