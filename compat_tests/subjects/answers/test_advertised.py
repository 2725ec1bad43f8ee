"""The stored list of what Apache Kafka 4.3.1 advertises to clients is what a live one says; the fast test
`server/tests/apis/test_advertised.py` holds it against ours.
"""

from __future__ import annotations

import csv
from contextlib import closing
from pathlib import Path

import pytest

from barnabas.kproto.messages import ApiVersionsRequest
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.subjects.access.connection import Connection
from compat_tests.subjects.answers.conftest import start_collecting

STORED = PROJECT_ROOT / "server" / "tests" / "apis" / "data" / "kafka_apis.tsv"


@pytest.mark.campaign
@pytest.mark.jvm
def test_apache_kafka_advertises_what_is_stored(tmp_path: Path) -> None:
    broker = start_collecting(tmp_path, is_kafka=True)
    try:
        with closing(Connection(broker.address)) as connection:
            asked = ApiVersionsRequest(client_software_name="answers", client_software_version="1")
            answer = connection.ask(asked, 4)
    finally:
        broker.stop()
    with STORED.open() as lines:
        stored = {
            tuple(int(row[each]) for each in ("key", "first", "last")) for row in csv.DictReader(lines, delimiter="\t")
        }
    assert {(each.api_key, each.min_version, each.max_version) for each in answer.api_keys} == stored
