"""What Apache Kafka 4.3.1 advertises on a listener for clients is served here, in each version, or docs/apis.md says
why not.

The table is what a live one says (`compat_tests/subjects/answers`), with an exporter for what clients push.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

from barnabas.kproto import ApiKey
from barnabas.server.apis import APIS

TABLE = Path(__file__).parent / "data" / "kafka_apis.tsv"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "apis.md"
_ROW = re.compile(r"^\| (\w+) \| (\d+) \| (.+) \|$", re.MULTILINE)


class Advertised(NamedTuple):
    name: str
    first: int
    last: int


def kafka() -> dict[int, Advertised]:
    """By key: what Apache Kafka 4.3.1 advertises."""
    with TABLE.open() as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return {int(row["key"]): Advertised(row["name"], int(row["first"]), int(row["last"])) for row in rows}


def declared() -> dict[int, tuple[str, str]]:
    """By key: name and reason, of what is not served."""
    return {int(key): (name, reason) for name, key, reason in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


def test_everything_is_served_or_declared() -> None:
    ours = {int(api.key): api.versions for api in APIS}
    missing = {
        key: api.name
        for key, api in kafka().items()
        if key not in ours or ours[key][0] > api.first or ours[key][1] < api.last
    }
    assert missing == {key: name for key, (name, _) in declared().items()}


def test_what_is_declared_is_not_served() -> None:
    assert not {int(api.key) for api in APIS} & set(declared())


def test_names_are_those_of_the_schemas() -> None:
    for key, api in kafka().items():
        assert ApiKey(key).name.replace("_", "").lower() == api.name.lower()
