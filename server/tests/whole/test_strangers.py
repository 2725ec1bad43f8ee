"""Strangers at the listeners of a broker: a short campaign of what `compat_tests.fuzz.strangers` does at length.

The broker runs in a thread of this process, so only what all of it shows is looked at: its log, who is served, and that
nothing is left of those who have gone.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.server.testing import broker_thread
from compat_tests.fuzz.strangers.talk import Talker

pytest.importorskip("joserfc")

INPUTS = 1_000
ANSWERS = INPUTS / 10
"""Strangers do not wait long for one: where the machine is busy this takes more inputs."""


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    texts: list[str] = []

    class Errors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(logging.Formatter().format(record))

    handler, logger = Errors(logging.ERROR), logging.getLogger("barnabas")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def test_strangers(tmp_path: Path, errors: list[str]) -> None:
    from compat_tests.fuzz.strangers.listeners import free_addresses, ground, listening, make_user
    from compat_tests.fuzz.strangers.log_in import log_in
    from compat_tests.fuzz.strangers.storm import Storm

    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, rules = random.Random(seed), ground(tmp_path)
    addresses = free_addresses()
    settings = {**rules.settings, "listeners": listening(addresses), "connection.failed.authentication.delay.ms": "20"}
    (tmp_path / "data").mkdir()
    with broker_thread(tmp_path / "data", **settings):
        make_user(addresses["PLAINTEXT"])
        storm = Storm(addresses, Talker(rng, rules.tokens), rng, rules.client, 32)
        try:
            while storm.inputs < INPUTS or storm.answers < ANSWERS:
                storm.step()
            log_in(addresses["SASL_PLAINTEXT"])
            log_in(addresses["SASL_SSL"], rules.client)
        finally:
            storm.close()
        log_in(addresses["SASL_SSL"], rules.client)
    assert not errors


def test_a_seed_gives_the_same_inputs_again() -> None:
    def said(seed: int) -> list[bytes]:
        talker = Talker(random.Random(seed), [b"token"])
        inputs = []
        for _ in range(200):
            visit = talker.visit()
            inputs.append(visit.listener.encode())
            if visit.listener == "SASL_PLAINTEXT":  # a hello of TLS is different each time
                inputs.append(next(visit.script))
                with suppress(StopIteration):
                    while True:
                        inputs.append(visit.script.send(b""))
        return inputs

    assert said(7) == said(7)
    assert said(7) != said(8)
