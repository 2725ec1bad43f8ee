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
from compat_tests.subjects.quotas.limited import Limited

pytestmark = [pytest.mark.slow, pytest.mark.jvm]
WAITS_S = 60


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

    def create(name: str, partitions: int, expect: int) -> str:
        words = ("--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "1")
        return tools("kafka-topics", *words, "--command-config", str(login), expect=expect)

    first, second, third = unique(), unique(), unique()
    create(first, 30, 0)  # eleven tokens were there
    assert "quota" in create(second, 1, 1).lower()
    old = AdminClient(limited.settings("old", "alice"))
    for future in old.create_topics([NewTopic(third, 1, 1)]).values():
        future.result(WAITS_S)
    deadline = time.monotonic() + WAITS_S
    while True:
        try:
            create(second, 1, 0)
            break
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(1)
    known = AdminClient({"bootstrap.servers": limited.plaintext}).list_topics(timeout=30).topics
    assert {first, second, third} <= set(known)
