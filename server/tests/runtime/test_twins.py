"""What a broker says of barnabas-native when it starts."""

from __future__ import annotations

import logging

import pytest

from barnabas.kproto import compiled
from barnabas.kproto.compiled import Choice
from barnabas.server.runtime import twins


@pytest.mark.parametrize(
    ("choice", "level", "said"),
    [
        (Choice("1.2.3"), logging.INFO, "barnabas-native 1.2.3 "),
        (Choice("", "it is not installed"), logging.INFO, "barnabas-native is not used (it is not installed): "),
        (Choice("", "BARNABAS_PURE=1"), logging.INFO, "barnabas-native is not used (BARNABAS_PURE=1): "),
        (Choice("", "it is broken", True), logging.WARNING, "barnabas-native is not used (it is broken): "),
    ],
)
def test_one_line(
    choice: Choice, level: int, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "CHOICE", choice)
    with caplog.at_level(logging.INFO, "barnabas.broker"):
        twins.say_which()
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith(said)
