"""The table for people: docs/access-table.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from barnabas.kproto import ErrorCode
from compat_tests.subjects.access.differences import DIFFERENCES
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes import PROBES
from compat_tests.subjects.access.runner import Outcomes
from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD, OPEN_WORLD, Table, runs
from compat_tests.subjects.access.trial import ALL, cells

SERVED = ("served", "?")
"""In the outcomes of requests that need nothing: the name of what was made is nobody's yet."""
PAGE = Path(__file__).resolve().parents[3] / "docs" / "access-table.md"
_TEXT = """\
# Who may ask what

Made by `python -m compat_tests.subjects.access`, which asks Apache Kafka 4.3.1 with StandardAuthorizer. Tests ask our
broker the same and compare every answer: {closed} answers to {probes} requests, in each of their versions, from users
with other ACLs each: none, the needed ones, each other operation in their place, prefixed, on `*`, for one host, for
`User:*`, denied in all these ways; and from a super user. {open} more with `allow.everyone.if.no.acl.found`.
{earlier} more are of requests and versions that only Apache Kafka 3.9.1 with ZooKeeper serves, and we do.

*Needs*: each of it; what is needed on TOPIC or GROUP is so for each one that the request names. *Or*: what opens it as
well, wholly or for a part, beside ALL and what implies the operation (READ, WRITE, DELETE and ALTER imply DESCRIBE,
ALTER_CONFIGS implies DESCRIBE_CONFIGS). *Without*: what a user sees who has no ACL at all, about topics, groups and ids
that are there; an error's place is the list of the answer that it stands in.

| request | versions | needs | or | without |
| --- | --- | --- | --- | --- |
{rows}

Who has only a part of what is needed is served in part, or sees the error of what is missing. Topics that are not there
are answered like those that are and that nobody allows; ids of topics are no secret.

## What is not as in Apache Kafka

In what a request of the table above is answered, on the left Apache Kafka's, on the right ours. `mine`, `other`, `none`
are the topics that the ACLs name, another, and one that is not there.

| request | Apache Kafka | Barnabas | why |
| --- | --- | --- | --- |
{differences}

## What Apache Kafka 4 does not serve any more

| request | versions | needs | or | without |
| --- | --- | --- | --- | --- |
{earlier_rows}
"""


def page(tables: dict[str, Table]) -> str:
    closed = tables[CLOSED_WORLD]
    earlier = tables[EARLIER_WORLD]
    rows = [_row(probe, closed[probe.name]) for probe in PROBES]
    earlier_rows = [_row(probe, earlier[probe.name]) for probe in ALL if probe.name in earlier]
    differences = [f"| {one.probe} | `{one.theirs}` | `{one.ours}` | {one.reason} |" for one in DIFFERENCES]
    return _TEXT.format(
        closed=cells(closed),
        open=cells(tables[OPEN_WORLD]),
        probes=len(rows),
        rows="\n".join(rows),
        differences="\n".join(differences),
        earlier=cells(earlier),
        earlier_rows="\n".join(earlier_rows),
    )


def _row(probe: Probe, outcomes: Outcomes) -> str:
    nothing = outcomes["nothing"]
    versions = f"{min(nothing)}-{max(nothing)}" if len(nothing) > 1 else str(min(nothing))
    needs = ", ".join(map(str, probe.needs)) or ("nothing" if nothing[max(nothing)] in SERVED else "no ACL helps")
    instead = ", ".join(_instead(probe, outcomes)) or ""
    told: dict[str, list[str]] = {}
    for run in runs(nothing):
        told.setdefault(_told(run.outcome, bool(probe.needs)), []).append(str(run))
    without = "; ".join(text if len(told) == 1 else f"{', '.join(of)}: {text}" for text, of in told.items())
    return f"| {probe.name} | {versions} | {needs} | {instead} | {without} |"


def _instead(probe: Probe, outcomes: Outcomes) -> Iterator[str]:
    """Operations on the cluster that alone open something, but for ALL and those that only imply another; then the
    first of the probe's own scenarios that is as good as what it needs.
    """
    opening = [
        title.removeprefix("only ")
        for title, found in outcomes.items()
        if title.startswith("only ") and title.endswith(" CLUSTER") and found != outcomes["nothing"]
    ]
    for title in opening:
        if title != "ALL CLUSTER" and (title == "DESCRIBE CLUSTER" or "DESCRIBE CLUSTER" not in opening):
            yield title
    yield from [title for title in probe.also if outcomes[title] == outcomes.get("literal")][:1]


def _told(outcome: str, is_needed: bool) -> str:
    """The errors of an outcome with their places; without one, that nothing is told."""
    places: dict[str, None] = {}
    path: list[str] = []
    for word in re.findall(r"\w+\[|\]|[\w=]+", outcome):
        if word.endswith("["):
            path.append(word[:-1])
        elif word == "]":
            path.pop()
        elif word.rpartition("=")[2] in ErrorCode.__members__ and "UNKNOWN_TOPIC" not in word:
            places[f"{word}" + (f" in {'.'.join(path)}" if path else "")] = None
    if places:
        return ", ".join(places)
    if outcome == "served" or not is_needed:
        return "served"
    return outcome if "[" not in outcome else "left out"
