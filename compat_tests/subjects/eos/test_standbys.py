"""Kafka Streams in a streams group with a standby for each task with state: who is killed is replaced by who has it."""

from __future__ import annotations

import re
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from compat_tests.clients.tools_cli.test_topics import CLIENT
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.checks import wait_until
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.applications import Application, written
from compat_tests.subjects.eos.readers import administrator

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

TITLE = "Kafka Streams in a streams group: standby tasks, and who had one goes on"
LINES, COUNTS, NAME = "lines", "word-counts", "counter"


def produced(bootstrap: str, *lines: str) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for line in lines:
        producer.produce(LINES, line)
    assert producer.flush(60) == 0


@pytest.mark.case("exactly once", TITLE, CLIENT)
def test_who_has_a_standby_goes_on(restartable: Restartable, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    bootstrap = restartable.bootstrap
    admin = administrator(bootstrap)
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in (LINES, COUNTS)]).values():
        made.result(60)
    one = ConfigEntry("streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    for done in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.GROUP, NAME, incremental_configs=[one])]
    ).values():
        done.result(60)
    tools = Tools(bootstrap, warm_jvms)

    def members() -> str:
        return tools("kafka-streams-groups", "--describe", "--group", NAME, "--members", "--verbose")

    applications = [
        Application(bootstrap, (NAME, LINES, COUNTS), tmp_path / f"state-{number}", ["group.protocol=streams"])
        for number in range(2)
    ]
    try:
        for application in applications:
            application.start()
        for application in applications:
            application.wait_until_ready()
        produced(bootstrap, "a b c d e f g h", "a b c d e f g h")
        assert written(tools, COUNTS, 16) == ["1"] * 8 + ["2"] * 8
        wait_until(lambda: len(re.findall("[; ]STANDBY: 1:", members())) == 2, "both tasks with state have one", 180)
        applications[0].kill()
        produced(bootstrap, "a b c d e f g h")
        assert written(tools, COUNTS, 24) == ["1"] * 8 + ["2"] * 8 + ["3"] * 8
        applications[1].stop()
    finally:
        for application in applications:
            application.kill()
