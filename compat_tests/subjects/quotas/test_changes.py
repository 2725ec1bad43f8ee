"""Limits of changes that the controller makes (KIP-599): new clients are refused beyond them, old ones throttled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.tools_cli.test_topics import CLIENT
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.processes import Failed
from compat_tests.subjects.quotas.limited import Limited

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]
WAITS_S = 120
BURST, PARTITIONS = 11, 30
DEBT_S = PARTITIONS - BURST
"""After so many partitions at once, with a rate of one a second."""


@pytest.mark.case("quotas", "controller_mutation_rate: kafka-topics is refused, CreateTopics 4 is not", CLIENT)
def test_changes(
    limited: Limited, warm_jvms: WarmJvms, limit: Callable[..., None], unique: Callable[..., str], tmp_path: Path
) -> None:
    limit("controller_mutation_rate=1", "--entity-type", "users", "--entity-name", "alice")
    login = tmp_path / "alice.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="alice-secret";\n'
    )
    tools = Tools(limited.clients, warm_jvms)

    def create(name: str, partitions: int, expect: int | None) -> str:
        words = ("--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "1")
        return tools("kafka-topics", *words, "--command-config", str(login), expect=expect)

    def create_when_allowed(name: str, partitions: int) -> None:
        deadline = time.monotonic() + WAITS_S
        while True:
            try:
                create(name, partitions, 0)
                break
            except Failed:
                assert time.monotonic() < deadline
                time.sleep(1)

    while True:
        first, second, third = unique(), unique(), unique()
        begun = time.monotonic()
        create_when_allowed(first, PARTITIONS)
        if "quota" in create(second, 1, None).lower():
            break
        # It is refused, unless the machine stood still until the debt was paid.
        assert time.monotonic() - begun > DEBT_S
    old = AdminClient(limited.settings("old", "alice"))
    for future in old.create_topics([NewTopic(third, 1, 1)]).values():
        future.result(WAITS_S)
    create_when_allowed(second, 1)
    known = AdminClient({"bootstrap.servers": limited.plaintext}).list_topics(timeout=60).topics
    assert {first, second, third} <= set(known)
