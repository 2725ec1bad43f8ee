"""docs/metrics.md: what is scraped, and the tools that say what clients shall push."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = [pytest.mark.slow, pytest.mark.jvm]
PAGE = "docs/metrics.md"


def test_the_page(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, with_kafka=True)
    ((serve, curl),) = [block.splitlines() for block in texts(PAGE, "Metrics and health", "sh")]
    (subscriptions,) = texts(PAGE, "What clients say of themselves", "sh")
    on_its_port = f"{serve} --set listeners=PLAINTEXT://localhost:9092 --set log.dirs=data"
    with stranger.keeps_running(on_its_port, "serves "):
        said = stranger.types(curl.replace("curl ", "curl --silent --fail ")).stdout
        assert "# HELP kafka_server_brokertopicmetrics_messagesin_total " in said
        said = stranger.types(subscriptions).stdout
        assert "interval.ms=60000" in said
        assert "match=client_software_name=apache-kafka-java" in said
        assert "org.apache.kafka.consumer." in said
