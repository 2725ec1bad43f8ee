"""Nodes of a cluster that give up starting: which are started again, on a program that stands for Apache Kafka."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from compat_tests.clusters.harness import Cluster
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


def test_a_cluster_that_waits_starts_it_again(tmp_path: Path) -> None:
    kafka = node(KafkaNode, tmp_path, f"{FATAL}\n{EXPIRED}")
    failed = node(KafkaNode, tmp_path / "failed", FATAL)
    with closing(Cluster(tmp_path, [])) as cluster:
        cluster.nodes |= {1: kafka, 2: failed}
        for each in cluster.nodes.values():
            each.start()
        cluster.wait(lambda: kafka.accepts and not failed.alive, "one is open, one has ended")
        assert kafka.log_text().count(STARTED) == 2
        with pytest.raises(NodeFailed, match="waited 0 s in vain until it is open"):
            cluster.wait(lambda: failed.accepts, "it is open", timeout=0)
        assert failed.log_text().count(STARTED) == 1


@pytest.mark.parametrize("refused", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), TimeoutError("no answer")])
def test_a_question_without_an_answer_does_not_hold(refused: Exception, tmp_path: Path) -> None:
    answers = iter([refused, True])

    def holds() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    Cluster(tmp_path, []).wait(holds, "it answers", pause=0)


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
