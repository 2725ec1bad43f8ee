"""The targets of the coverage-guided run, on a little random input; they see what is wrong."""

from __future__ import annotations

import random

import pytest

from compat_tests.fuzz import coverage_guided
from compat_tests.fuzz.coverage_guided import run_random, seeds, targets

NAMES = ("messages", "records", "old", "packed")


@pytest.mark.parametrize("name", NAMES)
def test_targets_take_right_and_damaged_input(name: str) -> None:
    assert run_random(name, 0.2, 1) >= 20  # a round: an input that is right, and damaged ones made of it


def test_a_decoder_that_raises_something_else_is_seen() -> None:
    def broken(function: object) -> object:
        def decode(data: bytes, offset: int) -> object:
            raise IndexError("end of input")

        return decode

    target = targets(broken)["messages"]  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        target(seeds("messages", random.Random(1)))


def test_a_check_of_records_that_takes_too_much_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    batch = next(data for data in iter(lambda: seeds("records", rng), None) if len(data) > 61)
    real = coverage_guided.check_batch
    monkeypatch.setattr(coverage_guided, "check_batch", lambda data: real(data)._replace(record_count=99))
    monkeypatch.setattr(coverage_guided, "check_client_header", lambda header: None)
    with pytest.raises(AssertionError):
        coverage_guided.records(batch)
