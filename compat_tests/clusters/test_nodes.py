"""Nodes of a cluster that give up starting: which are started again, on a program that stands for Apache Kafka."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compat_tests.clusters.nodes import STARTED, KafkaNode, NodeFailed, OurNode
from compat_tests.harness.ports import free_ports

GIVES_UP = """
import pathlib, socket, sys, time
there = pathlib.Path("has-started")
if there.exists():
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
        time.sleep(600)
there.touch()
print(sys.argv[2])
sys.exit(int(sys.argv[3]))
"""
FATAL = "ERROR kafka.Kafka$ - Exiting Kafka due to fatal exception during startup."
EXPIRED = "org.apache.zookeeper.KeeperException$SessionExpiredException: KeeperErrorCode = Session expired for /brokers"


def node(kind: type[KafkaNode | OurNode], directory: Path, said: str, status: int = 1) -> KafkaNode | OurNode:
    """A node that says this, ends with this status, and starts the next time."""
    (port,) = free_ports(1)

    class GivesUp(kind):  # type: ignore[valid-type, misc]
        def command(self) -> list[str]:
            return [sys.executable, "-c", GIVES_UP, str(port), said, str(status)]

    made: KafkaNode | OurNode = GivesUp(1, directory, ("127.0.0.1", port), {})
    return made


def test_kafka_whose_session_expired_is_started_again(tmp_path: Path) -> None:
    kafka = node(KafkaNode, tmp_path, f"{FATAL}\n{EXPIRED}")
    kafka.start()
    try:
        kafka.wait_open()
        assert kafka.alive
        assert not kafka.wants_another_start
        assert kafka.log_text().count(STARTED) == 2
    finally:
        kafka.kill()
    assert not kafka.wants_another_start, "it was killed"


@pytest.mark.parametrize(
    ("kind", "said", "status"),
    [(KafkaNode, FATAL, 1), (KafkaNode, EXPIRED, 1), (KafkaNode, f"{FATAL}\n{EXPIRED}", 0), (OurNode, EXPIRED, 1)],
    ids=["another error", "after its start", "in order", "ours"],
)
def test_who_ends_otherwise_has_failed(kind: type[KafkaNode | OurNode], said: str, status: int, tmp_path: Path) -> None:
    failed = node(kind, tmp_path, said, status)
    failed.start()
    with pytest.raises(NodeFailed, match=f"ended with {status}"):
        failed.wait_open()
    assert failed.log_text().count(STARTED) == 1
