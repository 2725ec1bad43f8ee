"""Batches that the compiled scan lets in without a full check, whatever their records are like; those it does not."""

from __future__ import annotations

import pytest

from barnabas.kproto import compiled
from barnabas.kproto.records import BATCH_OVERHEAD, NO_TIMESTAMP, Record, build_batch
from barnabas.logdir import LogConfig
from barnabas.logdir.segments.familiar import SCANNED_MAX, Scanned
from barnabas.logdir.tests.kit import NOW, batch, stored
from barnabas.logdir.tests.logs.test_append_run import good, learnt, run
from barnabas.logdir.tests.logs.test_familiar import FURTHER, VALUES, known_after, knows_nothing

pytestmark = pytest.mark.skipif(compiled.scan is None, reason=f"barnabas-native is not used: {compiled.CHOICE.why_not}")


def test_a_scan_knows_good_batches_whatever_they_are_like() -> None:
    scanned = Scanned(LogConfig())
    headers = [("trace", b"1"), ("span", None)]
    records = [
        Record(0, NOW, None, b"a", []),
        Record(0, NOW - 70_000, b"key", None, headers),
        Record(0, NOW, b"", b"c" * 9_000, []),
    ]
    assert known_after(scanned, build_batch(records)) == [True]
    assert known_after(scanned, batch("d"), batch(*["e"] * SCANNED_MAX)) == [True, True]
    early = memoryview(batch("d", timestamp=NO_TIMESTAMP))
    assert not scanned.knows(early, 1, NO_TIMESTAMP, NO_TIMESTAMP), "left to those who look closer"


def test_what_a_scan_does_not_know() -> None:
    scanned = Scanned(LogConfig())
    view = memoryview(batch(*VALUES))
    assert not scanned.knows(view, 4, NOW, NOW)
    assert not scanned.knows(view, 6, NOW, NOW)
    assert not scanned.knows(view, 5, NOW, NOW + 1), "a wrong max timestamp is corrected by those who look closer"
    assert not scanned.knows(view[:-1], 5, NOW, NOW)
    assert not known_after(scanned, batch(*["a"] * (SCANNED_MAX + 1)))[0], "too many for one look"
    many = [Record(0, NOW, None, b"a", [("h", b"")] * SCANNED_MAX)]
    assert not known_after(scanned, build_batch(many))[0], "headers count as well"
    odd = bytearray(view)
    odd[BATCH_OVERHEAD + 3] = 2  # the first record's offset delta is 1
    assert not scanned.knows(memoryview(odd), 5, NOW, NOW)


@pytest.mark.parametrize("config", FURTHER)
def test_topics_with_further_rules_know_nothing(config: dict[str, object]) -> None:
    knows_nothing(Scanned, LogConfig(**config))  # type: ignore[arg-type]


def test_a_scanned_run_may_have_records_of_all_sizes() -> None:
    log = learnt()
    others = batch("other", producer=(7, 0, 20)), batch("a", "bc", producer=(7, 0, 21))
    assert run(log, good(15), *others) == [19, 20, 22]
    log.write()
    assert [header.record_count for header, _ in stored(log)][3:] == [5, 1, 2]
