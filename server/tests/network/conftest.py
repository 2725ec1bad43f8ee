"""What holds for all tests of the network."""

from __future__ import annotations

import pytest

from barnabas.server.network import reactor

PATIENCE_S = 600.0


@pytest.fixture(autouse=True)
def _a_machine_that_stands_still(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the machine no handshake is late, however long this process had no core in between."""
    if not {"mock_clock", "autojump_clock"} & set(request.fixturenames):
        monkeypatch.setattr(reactor, "HANDSHAKE_S", PATIENCE_S)
