"""What tests of several APIs ask for by name."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.logdir.segments.producers import Producers
from barnabas.server.coordinators.verification import TxnVerification
from barnabas.server.coordinators.verification_asks import Errors


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> list[Errors]:
    """What the coordinator has answered; its first confirmation comes when the last transaction's marker has just taken
    the verification along.
    """
    verify, check = Producers.verify, TxnVerification.check
    asked: list[Producers] = []
    answers: list[Errors] = []

    def noting(self: Producers, *what: Any) -> Any:
        asked.append(self)
        return verify(self, *what)

    def late(self: TxnVerification, *what: Any) -> None:
        *about, done = what

        def confirmed(errors: Errors) -> None:
            answers.append(errors)
            if len(answers) == 1 and not errors:
                asked[-1].verifying.clear()
            done(errors)

        check(self, *about, confirmed)

    monkeypatch.setattr(Producers, "verify", noting)
    monkeypatch.setattr(TxnVerification, "check", late)
    return answers
