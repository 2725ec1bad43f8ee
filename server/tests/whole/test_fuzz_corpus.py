"""The packets of past findings, sent to a broker: it lives, logs no error, answers all clients and is not blocked.

Each file of `compat_tests/fuzz/corpus` is sent to a broker of its own, in a thread of this process. Its CPU time is
measured, not the time that passes: a packet that makes others wait for seconds costs seconds wherever it runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.server.testing import broker_thread
from compat_tests.fuzz.campaign import Target, prepare
from compat_tests.fuzz.honest import Honest
from compat_tests.fuzz.recording import read
from compat_tests.fuzz.replay import Replay

CORPUS = Path(__file__).resolve().parents[3] / "compat_tests" / "fuzz" / "corpus"
FILES = sorted(CORPUS.glob("*.fuzz"))
CPU_SECONDS_MAX = 0.3
SIZE_MAX = 200_000


class Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@pytest.fixture
def errors() -> Iterator[list[str]]:
    handler = Errors()
    logger = logging.getLogger("barnabas")
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)


def cpu_seconds() -> float:
    """Of the broker's thread."""
    (thread,) = (one for one in threading.enumerate() if one.name == "barnabas")
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_corpus(path: Path, tmp_path: Path, errors: list[str]) -> None:
    with broker_thread(tmp_path, group_initial_rebalance_delay_ms="100") as bootstrap:
        host, _, port = bootstrap.rpartition(":")
        address = (host, int(port))
        honest = Honest([address], "corpus", timeout=60.0)
        honest.begin()
        prepare([Target("the broker", address)])
        replay = Replay(address)
        before = cpu_seconds()
        try:
            replay.run(read(path.read_text()))
            honest.session()
            assert not replay.waiting()
        finally:
            replay.close()
            honest.close()
        took = cpu_seconds() - before
    assert not errors
    assert took < CPU_SECONDS_MAX, f"{took:.1f} s of the broker's time"


def test_the_corpus_stays_small() -> None:
    assert len(FILES) > 25
    assert sum(path.stat().st_size for path in FILES) < SIZE_MAX
