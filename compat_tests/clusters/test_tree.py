"""What is asked of a ZooKeeper that is away: an end in time, an answer when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.clusters.tree import Session
from compat_tests.harness.zookeeper import zookeeper

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


def test_a_question_ends(tmp_path: Path) -> None:
    with zookeeper(tmp_path) as server:
        session = Session(server.connect)
        hasty = Session(server.connect, answer_s=0.5)
        try:
            session.ask(lambda client: client.create_async("/a", b"data"))
            server.kill()
            for question in (hasty.get, hasty.exists, hasty.get_children):
                with pytest.raises(TimeoutError, match="did not answer in"):
                    question("/a")
            server.start()
            assert session.get("/a")[0] == b"data"
            assert session.exists("/b") is None
            assert session.get_children("/a") == []
        finally:
            hasty.close()
            session.close()
